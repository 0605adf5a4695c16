"""An editor's session in a sandbox: the agent may write in the directory that the editor opens."""

import shutil

import pytest

from acpterm.acp.approvals import SESSION_OPEN
from tests.support.asking import configured
from tests.support.daemon import daemon
from tests.support.editor import create, of
from tests.support.processes import environment
from tests.support.proxies import editor_of
from tests.support.sandboxes import place as new_place

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="requires bwrap"),
]


@pytest.fixture
def place():
    with new_place(repository=False) as found:
        yield found


def sandboxing_daemon(tmp_path):
    # Not guarded: on a busy machine it would ask whether a file is there to be overwritten.
    variables = configured(tmp_path, profile="open", provider="bubblewrap", rules="/dev/null")
    return daemon(tmp_path, env=environment(**variables), terminate=True)


async def can_write(editor, path):
    """Let the agent write in a directory, and return whether that has worked."""
    target = path / "written"
    target.unlink(missing_ok=True)
    await editor.prompt(create(f"echo x > {target}"), of("wait_for_exit"), of("release"))
    return target.exists()


async def test_workspace_of_an_editors_session_survives_a_takeover(tmp_path, place):
    async with (
        sandboxing_daemon(tmp_path) as daemon,
        editor_of(tmp_path, daemon.path) as editor,
    ):
        await editor.open(str(place.workspace))
        for _ in range(2):
            assert await can_write(editor, place.workspace)
            assert not await can_write(editor, place.outside)
            await daemon.kill_worker()


@pytest.mark.parametrize("method", [SESSION_OPEN, "_acpterm/session/set"])
async def test_agent_cannot_change_the_workspace_through_the_proxy(tmp_path, place, method):
    async with (
        sandboxing_daemon(tmp_path) as daemon,
        editor_of(tmp_path, daemon.path) as editor,
    ):
        await editor.open(str(place.workspace))
        params = {"cwd": str(place.outside)}
        await editor.prompt({"do": "ask", "method": method, "params": params, "as": "x"})
        # The editor gets all methods of the agent that are not the host's for an agent.
        is_passed_on = any(message.get("method") == method for message in editor.messages)
        assert is_passed_on is (method == SESSION_OPEN)
        assert not await can_write(editor, place.outside)
        assert await can_write(editor, place.workspace)
