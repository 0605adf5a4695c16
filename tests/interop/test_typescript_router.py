"""An agent behind the official TypeScript SDK's router, with its client or `acpterm prompt`.

The agent prints a banner and a line of a log on stdout, as launchers do.
"""

import json
from pathlib import Path

import pytest
import trio

from tests.interop.sdks import report_of, typescript
from tests.support.processes import environment
from tests.support.starting import ACPTERM

# Installing the SDK can take longer than the timeout of other tests.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture
def routed() -> list[str]:
    node, driver = typescript()
    return [node, str(Path(driver).with_name("routed.mjs"))]


async def edit(directory, routed, version, *versions):
    """Run the SDK's client in front of a proxy; return its report."""
    proxy = [*ACPTERM, "proxy", "--embedded", "--log-level", "error", "--"]
    plan = {"agent": [*proxy, *routed, "agent", *versions], "cwd": str(directory)}
    env = environment(XDG_CONFIG_HOME=str(directory))
    return await report_of([*routed, "edit"], {**plan, "version": version}, 60, env=env)


async def test_client_and_agent_meet_through_the_proxy(tmp_path, routed):
    report = await edit(tmp_path, routed, 1, "1", "2")
    assert (report["initialized"]["protocolVersion"], report["ended"]) == (
        1,
        {"stopReason": "end_turn"},
    )
    updates = {kind: [] for kind in ("notice", "compaction_update", "tool_call")}
    for update in report["updates"]:
        updates.setdefault(update["sessionUpdate"], []).append(update)
    assert [(one["title"], one.get("description")) for one in updates["notice"]] == [
        ("The agent has printed a line that is not JSON", "Welcome!"),
        ("The agent has printed JSON that is no message", '{"level":"info","id":0}'),
        ("Quota low", None),
    ]
    assert updates["compaction_update"][0]["status"] == "completed"
    assert updates["tool_call"][0]["name"] == "run_it"
    (shown,) = updates["tool_call_update"][-1]["content"]
    assert shown["content"]["text"].endswith("\nfrom a terminal\n```")
    told = json.loads(updates["agent_message_chunk"][0]["content"]["text"])
    assert told["clientInfo"]["name"] == "editor"
    assert "not a message\n" in report["stderr"]
    assert report["status"] == 0


async def test_refused_version_passes_the_proxy(tmp_path, routed):
    error = (await edit(tmp_path, routed, 0, "1", "2"))["error"]
    assert error["code"] == -32022
    assert error["data"] == {"requested": 0, "supported": [1, 2]}


@pytest.mark.parametrize("version", ["1", "2"])
async def test_prompt_says_what_it_is_and_shows_what_the_agent_does(tmp_path, routed, version):
    prompt = [*ACPTERM, "prompt", "--embedded", "--allow", "all", "go", "--"]
    done = await trio.run_process(
        [*prompt, *routed, "agent", version],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        cwd=tmp_path,
        env=environment(XDG_CONFIG_HOME=str(tmp_path)),
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    if version == "2":
        assert done.returncode == 1
        assert "speaks version 2 of the Agent Client Protocol alone" in err
        return
    assert done.returncode == 0, err
    assert '"clientInfo":{"name":"acpterm","title":"acpterm"' in out
    assert "▸ Run it (run_it)" in out
    assert "from a terminal\n" in out
    assert "acpterm: the agent's warning: Quota low\n" in err
    assert "acpterm: some of what the agent wrote is no message: " in err
