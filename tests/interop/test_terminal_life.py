"""Agents of the official SDKs use terminals from creation to release, on each host transport.

An agent sends requests and records the responses; each test checks one aspect of the record.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.interop.sdks import SDKS, report_of
from tests.support.daemon import daemon
from tests.support.polling import poll
from tests.support.processes import alive, environment
from tests.support.starting import ACPTERM
from tests.support.web import web_daemon

# Installing an SDK can take longer than the timeout of other tests.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

GREETING = "grüß 🙂"
KILL_GRACE_S = 40
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
    """What an agent has recorded; and the agent's SDK, its transport, and its directory."""

    sdk: str
    transport: str
    directory: str


@pytest.fixture(
    scope="module",
    params=[
        *((sdk, transport) for sdk in SDKS for transport in ("stdio", "socket")),
        ("typescript", "websocket"),
    ],
    ids="-".join,
)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    sdk, transport = request.param
    driver = SDKS[sdk]()
    directory = tmp_path_factory.mktemp("life")
    report = Report(trio.run(partial(_drive, driver, transport, directory)))
    report.sdk, report.transport, report.directory = sdk, transport, str(directory)
    return report


async def _drive(driver: list[str], transport: str, directory: Path) -> Any:
    env = environment(XDG_CONFIG_HOME=str(directory / "none"), ACPTERM_KILL_GRACE=str(KILL_GRACE_S))

    async def drive(host: Any) -> Any:
        plan = PLAN | {"directory": str(directory), "host": host}
        record = await report_of(driver, plan, 60, env=env)
        # The agent has exited without releasing its last terminal.
        await poll(lambda: not alive(_pid(record["left"])))
        return record

    if transport == "stdio":
        return await drive([*ACPTERM, "stdio", "--embedded"])
    if transport == "websocket":
        async with web_daemon(directory, env=env) as web:
            url = f"{web.origin.replace('http', 'ws', 1)}/acp"
            return await drive({"url": url, "token": web.agent_token})
    async with daemon(directory, env=env) as (_process, path):
        return await drive(path)


def _pid(output: dict[str, Any]) -> int:
    return int(output["output"].split()[0])


def _bare(status: dict[str, Any]) -> dict[str, Any]:
    """Return an exit status without its `_meta`."""
    return {name: value for name, value in status.items() if name != "_meta"}


def test_host_announces_terminals(report: Report) -> None:
    assert report["initialized"]["protocolVersion"] == 1
    assert report["initialized"]["clientCapabilities"]["terminal"] is True
    assert report["initialized"]["clientInfo"]["name"] == "acpterm"


def test_output_can_be_read_while_a_wait_is_pending(report: Report) -> None:
    output = report["life"]["running"]
    assert output["output"] == f"{GREETING}, two  words\n{report.directory}\nwaiting\n"
    assert output["truncated"] is False
    assert output.get("exitStatus") is None


def test_wait_returns_the_exit_code(report: Report) -> None:
    assert _bare(report["life"]["waited"]) == {"exitCode": 7, "signal": None}


def test_last_output_is_complete_and_has_the_exit_status(report: Report) -> None:
    output = report["life"]["output"]
    assert output["output"].endswith("\nwaiting\ndone\n")
    assert output["exitStatus"] == report["life"]["waited"]


def test_kill_after_the_exit_and_both_releases_succeed(report: Report) -> None:
    for answer in (report["life"][name] for name in ("killed", "released", "again")):
        assert answer == {}


def test_request_for_a_released_terminal_is_an_error_with_the_reason(report: Report) -> None:
    after = report["life"]["after"]
    assert after["error"] == -32002
    assert "has been released" in after["message"]


def test_output_over_the_limit_loses_its_beginning_at_a_character_boundary(report: Report) -> None:
    output = report["cut"]["output"]
    assert output["output"] == "end\n"  # The limit of six is in the middle of the 🙂.
    assert output["truncated"] is True


def test_exit_by_signal_has_a_name_and_no_code(report: Report) -> None:
    assert _bare(report["signalled"]["waited"]) == {"exitCode": None, "signal": "SIGSEGV"}
    assert report["signalled"]["output"]["output"].startswith("so long\n")


def test_agent_that_stops_waiting_can_kill_read_and_release(report: Report) -> None:
    timed_out = report["timed_out"]
    assert timed_out["killed"] == timed_out["released"] == timed_out["again"] == {}
    assert timed_out["output"]["output"].endswith(" asleep\n")
    assert _bare(timed_out["output"]["exitStatus"]) == {"exitCode": None, "signal": "SIGTERM"}
    assert _bare(timed_out["waited"]) == {"exitCode": None, "signal": "SIGTERM"}
    assert not alive(_pid(timed_out["output"]))


def test_kill_is_answered_when_the_program_has_ended(report: Report) -> None:
    assert report["timed_out"]["seconds"] < KILL_GRACE_S / 2


def test_wait_cancelled_by_the_agent_is_answered_as_cancelled(report: Report) -> None:
    # The Python SDK sends no cancellation when it stops waiting.
    if report.sdk == "python":
        assert report["timed_out"]["gave_up"] == "timed out"
    else:
        assert report["timed_out"]["gave_up"]["error"] == -32800


@pytest.mark.parametrize(
    ("wrong", "code", "expected"),
    [
        ("relative", -32602, "'not/absolute' is not absolute"),
        ("empty", -32602, "command '' is empty"),
        ("unknown", -32002, "no terminal 'never-was'"),
        ("foreign", -32002, "no terminal"),
        ("file", -32601, "fs/read_text_file"),
        ("extension", -32601, "_nobody/knows"),
    ],
)
def test_error_is_raised_by_the_sdk_with_its_message(
    report: Report, wrong: str, code: int, expected: str
) -> None:
    assert report["wrong"][wrong]["error"] == code
    assert expected in report["wrong"][wrong]["message"]


def test_stdio_host_exits_with_its_agent(report: Report) -> None:
    assert set(report["ended"]) == ({0} if report.transport == "stdio" else set())
