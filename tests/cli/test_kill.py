"""`acpterm kill`, `rm` and `promote`: their effects and errors."""

import pytest

from tests.support.agent import agent_at
from tests.support.commands import run
from tests.support.daemon import daemon, user_socket
from tests.support.processes import environment
from tests.support.user import user_at


async def test_kill_ends_each_named_terminal(user, path):
    one, two = (
        await user.create("sleep 1000", "one"),
        await user.create("sleep 1000"),
    )
    three = await user.create("sleep 1000")
    status, out, err = await run(path, "kill", "one", two[5:13])
    assert (status, err) == (0, "")
    assert sorted(out.splitlines()) == sorted(
        ["one: ended by SIGTERM", f"{two[5:13]}: ended by SIGTERM"]
    )
    states = {info["terminalId"]: info for info in await user.list()}
    assert [states[t]["exitStatus"]["endedBy"] for t in (one, two)] == ["user", "user"]
    assert states[three]["state"] == "running"


async def test_kill_reports_each_failure_and_kills_the_other_terminals(user, path):
    one = await user.create("sleep 1000")
    status, out, err = await run(path, "kill", "none", one, "\x1b[31mred")
    assert (status, out) == (1, f"{one}: ended by SIGTERM\n")
    first, second = err.splitlines()
    assert first.startswith("acpterm: there is no terminal 'none': name one by its id")
    assert second.startswith("acpterm: there is no terminal '\\x1b[31mred'")
    (info,) = await user.list()
    assert info["state"] == "exited"


STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


async def test_kill_waits_until_the_program_has_ended(tmp_path):
    async with (
        daemon(tmp_path, env=environment(ACPTERM_KILL_GRACE="0.5")) as (_, path),
        user_at(user_socket(path)) as user,
    ):
        one = await user.create(STUBBORN, "one")
        await user.until_output(one, "ready")
        assert await run(path, "kill", "one") == (0, "one: ended by SIGKILL\n", "")
        info = await user.terminal_request("get", one)
        assert (info["state"], info["ending"]) == ("exited", False)


@pytest.mark.long
async def test_kill_returns_at_once_with_no_wait_and_ls_shows_the_terminal_as_ending(tmp_path):
    async with (
        daemon(tmp_path, env=environment(ACPTERM_KILL_GRACE="20")) as (_, path),
        user_at(user_socket(path)) as user,
    ):
        one = await user.create(STUBBORN, "one")
        await user.until_output(one, "ready")
        assert (await user.terminal_request("get", one))["ending"] is False
        assert await run(path, "kill", "--no-wait", "one") == (0, "", "")
        assert "  ending  " in (await run(path, "ls")).out
        assert (await user.terminal_request("get", one))["ending"] is True


async def test_kill_reports_the_exit_status_when_the_program_has_ended(user, path):
    one = await user.create("exit 3", "one")
    await user.terminal_request("wait", one)
    assert await run(path, "kill", "one") == (0, "one: had exited with 3 already\n", "")


@pytest.mark.costly
@pytest.mark.parametrize("name", ["INT", "sigint", "2"])
async def test_kill_sends_only_the_named_signal(user, path, name):
    one = await user.create("trap 'echo got it' INT; echo ready; while :; do read x; done", "one")
    await user.until_output(one, "ready")
    assert await run(path, "kill", "--signal", name, "one") == (0, "", "")
    await user.until_output(one, "got it")
    assert (await user.terminal_request("get", one))["state"] == "running"


@pytest.mark.long
@pytest.mark.parametrize("name", ["kürzer", "\U0001f469\u200d\U0001f4bb é"])
async def test_message_has_the_name_as_it_was_typed(user, path, name):
    one = await user.create("exit 1", name)
    await user.terminal_request("wait", one)
    message = f"acpterm: terminal '{name}' has ended: its output can still be read\n"
    assert await run(path, "send", name, "hello") == (1, "", message)
    assert await run(path, "kill", "-s", "INT", name) == (1, "", message)
    short = one[5:13]
    assert (await run(path, "send", short, "x")).err == message.replace(name, short)
    assert await run(path, "kill", name) == (0, f"{name}: had exited with 1 already\n", "")


async def test_kill_refuses_an_unknown_signal(user, path):
    status, _, err = await run(path, "kill", "-s", "NONE", "one")
    assert status == 2
    assert "there is no signal 'NONE': say SIGINT" in err


@pytest.mark.parametrize("command", ["kill", "rm", "promote"])
async def test_command_reports_that_no_daemon_listens(tmp_path, command):
    status, out, err = await run(str(tmp_path / "agent.sock"), command, "one")
    assert (status, out) == (1, "")
    assert "no daemon listens at" in err


@pytest.mark.parametrize(
    "words", [["kill"], ["rm"], ["promote"], ["rm", "--exited", "one"], ["kill", ""]]
)
async def test_command_exits_with_2_at_an_invalid_command_line(tmp_path, words):
    status, out, err = await run(str(tmp_path / "agent.sock"), *words)
    assert (status, out) == (2, "")
    assert "Usage: acpterm" in err


async def test_rm_removes_a_running_terminal(user, path):
    one = await user.create("sleep 1000", "one")
    assert await run(path, "rm", one) == (0, "", "")
    assert await user.list(all=True) == []


async def test_rm_exited_keeps_running_terminals_and_those_that_an_agent_holds(user, agent, path):
    own, running = await user.create("exit 1"), await user.create("sleep 1000")
    held = await agent.create("exit 1")
    kept = await agent.create("exit 1")
    await agent.wait(held)
    content = [{"type": "terminal", "terminalId": kept}]
    update = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "content": content}
    await agent.notify("session/update", {"sessionId": agent.session, "update": update})
    await agent.release(kept)
    await user.terminal_request("wait", own)
    assert len(await user.list(all=True)) == 4
    assert await run(path, "rm", "--exited") == (0, "", "")
    assert [one["terminalId"] for one in await user.list(all=True)] == [running, held]
    assert (await agent.output(held))["exitStatus"]["exitCode"] == 1


async def test_rm_exited_has_nothing_to_do_without_a_daemon(tmp_path):
    assert await run(str(tmp_path / "agent.sock"), "rm", "--exited") == (0, "", "")


async def test_promote_makes_the_user_the_owner(user, path):
    async with agent_at(path) as agent:
        one = await agent.create("sleep 1000")
        assert await run(path, "promote", one) == (0, "", "")
    assert await run(path, "promote", one) == (0, "", "")
    (info,) = await user.list()
    assert (info["owner"], info["state"]) == ("user", "running")
