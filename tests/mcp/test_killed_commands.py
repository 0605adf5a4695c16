"""Commands in persistent shells that are killed: at their time limit, or with their call."""

from functools import partial

import anyio
import pytest

from acpterm.api.shell import Shell
from acpterm.mcp import server, shells
from tests.support.depth import DEADLINE_S
from tests.support.mcp import mcp_tools
from tests.support.polling import poll

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("bash_without_rc")]


@pytest.fixture
def kept_shells(monkeypatch):
    """Return a list to which each MCP server of the test adds its `Shells`."""
    kept = []

    class KeptShells(shells.Shells):
        def __init__(self, group):
            super().__init__(group)
            kept.append(self)

    monkeypatch.setattr(server, "Shells", KeptShells)
    return kept


async def test_command_in_a_shell_is_killed_at_its_limit_if_the_user_wants_that(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(shells, "_INTERRUPT_S", DEADLINE_S)
    async with mcp_tools(tmp_path, tool_at_timeout="kill") as tools:
        for seconds in (0.5, 5):
            shell = f"shell-{seconds:g}"
            await tools.call("terminal_bash", session=shell, command="x=5")
            command = "echo a; sleep 600"
            killed = await tools.call(
                "terminal_bash", session=shell, command=command, timeout_seconds=seconds
            )
            after = await tools.call("terminal_bash", session=shell, command="echo $x")
            # On a busy machine, the shorter time may be over before the output.
            if killed.text.startswith("a\n"):
                break
    assert killed.text.startswith("a\n")
    assert killed.state.endswith(", at its time limit]")
    assert killed.data["complete"]
    assert after.data["output"] == "5\n"


async def test_killed_command_leaves_its_shell_when_another_call_has_seen_its_end(
    tmp_path, monkeypatch, kept_shells
):
    monkeypatch.setattr(shells, "_INTERRUPT_S", DEADLINE_S)
    command = f"touch {tmp_path}/begun; sleep 600"
    async with mcp_tools(tmp_path, tool_at_timeout="kill") as tools:
        first = await tools.call("terminal_bash", session="s", command="true")
        named = kept_shells[0]._shells["s"]
        run_command = named.shell.run
        killed = []

        async def run_until_another_call_waits(command, **options):
            completed = await run_command(command, **options)
            await poll(lambda: named.lock.statistics().tasks_waiting > 0)
            return completed

        async def run():
            arguments = {"session": "s", "command": command, "timeout_seconds": 0.1}
            killed.append(await tools.call("terminal_bash", **arguments))

        monkeypatch.setattr(named.shell, "run", run_until_another_call_waits)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await poll((tmp_path / "begun").exists)
            waited = await tools.call("terminal_wait", sessionId=first.data["id"])
    assert waited.data["exitCode"] == 130
    assert killed[0].state.startswith("[exited after ")
    assert "exit code unknown" in killed[0].state


async def test_kill_at_the_limit_leaves_the_next_command_when_the_first_has_ended(
    tmp_path, monkeypatch, kept_shells
):
    monkeypatch.setattr(shells, "_INTERRUPT_S", 2 * DEADLINE_S)
    async with mcp_tools(tmp_path) as tools:
        first = await tools.call("terminal_bash", session="s", command="read line")
        assert first.data["state"] == "waiting_for_input"
        named = kept_shells[0]._shells["s"]

        async def run_next_instead():
            await tools.call("terminal_continue", sessionId=first.data["id"], stdin="\n")
            await tools.call("terminal_wait", sessionId=first.data["id"])
            await tools.call(
                "terminal_bash", session="s", command="sleep 600", run_in_background=True
            )

        monkeypatch.setattr(named.shell, "interrupt", run_next_instead)
        with anyio.fail_after(DEADLINE_S):
            await kept_shells[0]._kill_after(named, 0)
        busy = await tools.call("terminal_bash", session="s", command="true")
    assert "a command still runs in the shell 's': 'sleep 600'" in busy.text


async def test_time_for_the_start_of_the_shell_does_not_count_for_the_limit_of_its_command(
    tmp_path, monkeypatch
):
    ready = Shell._ready

    async def ready_late(shell):
        await anyio.sleep(seconds)
        return await ready(shell)

    monkeypatch.setattr(Shell, "_ready", ready_late)
    async with mcp_tools(tmp_path, tool_at_timeout="kill") as tools:
        # On a busy machine, the shorter time may be over before the program waits.
        for seconds in (2, 10):
            waits = await tools.call(
                "terminal_bash", session=f"s{seconds}", command="read x", timeout_seconds=seconds
            )
            if "at its time limit" not in waits.state:
                break
    assert "waits for input" in waits.state


async def test_shell_is_ended_when_its_command_ignores_the_interrupt(tmp_path, monkeypatch):
    monkeypatch.setattr(shells, "_INTERRUPT_S", 0.1)
    async with mcp_tools(tmp_path, tool_at_timeout="kill") as tools:
        await tools.call("terminal_bash", session="s", command="trap '' INT")
        killed = await tools.call(
            "terminal_bash", session="s", command="sleep 600", timeout_seconds=0.5
        )
    assert killed.state.startswith("[the shell has ended after ")
    assert killed.data["complete"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("trap", ["", "trap '' INT; "], ids=["interrupted", "ended"])
async def test_cancelled_command_leaves_a_name_that_can_be_used(tmp_path, trap):
    async with mcp_tools(tmp_path) as tools:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                command = f"{trap}touch {tmp_path}/begun; sleep 600"
                tasks.start_soon(partial(tools.call, "terminal_bash", session="s", command=command))
                await poll((tmp_path / "begun").exists)
                scope.cancel()
        result = await tools.call("terminal_bash", session="s", command="echo works")
    assert result.data["output"] == "works\n"
