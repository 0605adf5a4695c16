"""The official SDKs' agents lead terminals through their lives, on both of a host's transports.

An agent asks and notes down; what it noted is looked at here, one question per test.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.interop.sdks import SDKS
from tests.support.hosts import ACPTERM, alive, daemon, environment, poll

# Installing an SDK can take longer than a test may.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

GREETING = "grüß 🙂"
SCRIPT = """
printf '%s, %s\\n' "$GREETING" "$1"; pwd; echo waiting
until [ -e go ]; do sleep 0.02; done
echo done; exit 7
"""
PLAN = {
    "greeting": GREETING,
    "script": SCRIPT,
    "long": "seq 1 1000; echo 🙂end",
    "limit": 6,
    "signalled": "echo so long; kill -SEGV $$",
    "sleeper": "echo $$ asleep; exec sleep 600",
}


class Report(dict[str, Any]):
    """What an agent noted down, and of what it did so."""

    sdk: str
    transport: str
    folder: str


@pytest.fixture(
    scope="module",
    params=[(sdk, transport) for sdk in SDKS for transport in ("stdio", "socket")],
    ids="-".join,
)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    sdk, transport = request.param
    driver = SDKS[sdk]()
    folder = tmp_path_factory.mktemp("life")
    report = Report(trio.run(partial(_drive, driver, transport, folder)))
    report.sdk, report.transport, report.folder = sdk, transport, str(folder)
    return report


async def _drive(driver: list[str], transport: str, folder: Path) -> Any:
    env = environment(XDG_CONFIG_HOME=str(folder / "none"))

    async def drive(host: Any) -> Any:
        plan = json.dumps(PLAN | {"folder": str(folder), "host": host})
        with trio.fail_after(60):
            done = await trio.run_process(
                [*driver, plan],
                env=env,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        assert done.returncode == 0, done.stderr.decode()
        noted = json.loads(done.stdout)
        # The agent has gone without releasing its last terminal.
        await poll(lambda: not alive(_pid(noted["left"])))
        return noted

    if transport == "stdio":
        return await drive([*ACPTERM, "stdio", "--embedded"])
    async with daemon(folder) as (_process, path):
        return await drive(path)


def _pid(output: dict[str, Any]) -> int:
    return int(output["output"].split()[0])


def _bare(status: dict[str, Any]) -> dict[str, Any]:
    """Give an exit status without its `_meta`."""
    return {name: value for name, value in status.items() if name != "_meta"}


def test_the_host_says_that_it_has_terminals(report: Report) -> None:
    assert report["initialized"]["protocolVersion"] == 1
    assert report["initialized"]["clientCapabilities"]["terminal"] is True
    assert report["initialized"]["clientInfo"]["name"] == "acpterm"


def test_output_can_be_read_while_a_wait_is_pending(report: Report) -> None:
    seen = report["life"]["running"]
    assert seen["output"] == f"{GREETING}, two  words\n{report.folder}\nwaiting\n"
    assert seen["truncated"] is False
    assert seen.get("exitStatus") is None


def test_a_wait_gives_the_exit_code(report: Report) -> None:
    assert _bare(report["life"]["waited"]) == {"exitCode": 7, "signal": None}


def test_the_last_output_has_all_of_it_and_the_exit_status(report: Report) -> None:
    output = report["life"]["output"]
    assert output["output"].endswith("\nwaiting\ndone\n")
    assert output["exitStatus"] == report["life"]["waited"]


def test_kill_after_the_exit_and_both_releases_succeed(report: Report) -> None:
    for answer in (report["life"][name] for name in ("killed", "released", "again")):
        assert answer == {}


def test_a_released_terminal_is_an_error_that_says_so(report: Report) -> None:
    after = report["life"]["after"]
    assert after["error"] == -32002
    assert "has been released" in after["message"]


def test_output_over_the_limit_loses_its_beginning_and_no_half_character(report: Report) -> None:
    output = report["cut"]["output"]
    assert output["output"] == "end\n"  # The limit of six is in the middle of the 🙂.
    assert output["truncated"] is True


def test_death_by_signal_has_a_name_and_no_code(report: Report) -> None:
    assert _bare(report["signalled"]["waited"]) == {"exitCode": None, "signal": "SIGSEGV"}
    assert report["signalled"]["output"]["output"].startswith("so long\n")


def test_an_agent_that_gives_up_waiting_kills_reads_and_releases(report: Report) -> None:
    timed_out = report["timed_out"]
    assert timed_out["killed"] == timed_out["released"] == timed_out["again"] == {}
    assert timed_out["output"]["output"].endswith(" asleep\n")
    assert _bare(timed_out["output"]["exitStatus"]) == {"exitCode": None, "signal": "SIGTERM"}
    assert _bare(timed_out["waited"]) == {"exitCode": None, "signal": "SIGTERM"}
    assert not alive(_pid(timed_out["output"]))


def test_kill_is_answered_within_the_second_that_agents_give_it(report: Report) -> None:
    assert report["timed_out"]["seconds"] < 1


def test_a_wait_that_its_asker_cancels_is_answered_as_cancelled(report: Report) -> None:
    # The Python SDK says nothing to the host when it stops waiting.
    if report.sdk == "python":
        assert report["timed_out"]["gave_up"] == "timed out"
    else:
        assert report["timed_out"]["gave_up"]["error"] == -32800


@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        ("relative", -32602, "'not/absolute' is not absolute"),
        ("empty", -32602, "command '' is empty"),
        ("unknown", -32002, "no terminal 'never-was'"),
        ("foreign", -32002, "no terminal"),
        ("file", -32601, "fs/read_text_file"),
        ("extension", -32601, "_nobody/knows"),
    ],
)
def test_an_error_comes_as_the_sdks_own_and_says_what_is_wrong(
    report: Report, wrong: str, code: int, said: str
) -> None:
    assert report["wrong"][wrong]["error"] == code
    assert said in report["wrong"][wrong]["message"]


def test_a_host_on_stdio_ends_with_its_agent(report: Report) -> None:
    assert set(report["ended"]) == ({0} if report.transport == "stdio" else set())
