"""`acpterm kill`, `rm` and `promote`: what they do to terminals, and how they fail."""

import pytest

from tests.support.commands import run
from tests.support.hosts import agent_at, daemon
from tests.support.person import person_at


@pytest.fixture
async def path(tmp_path):
    async with daemon(tmp_path) as (_, path):
        yield path


@pytest.fixture
async def person(path):
    async with person_at(path.replace("agent.sock", "user.sock")) as person:
        yield person


async def made(person, command, name=None):
    info = await person.request("terminal/create", {"command": command, "name": name})
    return info["terminalId"]


async def test_kill_ends_each_that_is_named(person, path):
    one, two = await made(person, "sleep 1000", "one"), await made(person, "sleep 1000")
    three = await made(person, "sleep 1000")
    assert await run(path, "kill", "one", two[5:13]) == (0, "", "")
    states = {info["terminalId"]: info for info in await person.list()}
    assert [states[t]["exitStatus"]["endedBy"] for t in (one, two)] == ["user", "user"]
    assert states[three]["state"] == "running"


async def test_each_failure_is_said_and_the_others_are_done(person, path):
    one = await made(person, "sleep 1000")
    status, out, err = await run(path, "kill", "none", one, "\x1b[31mred")
    assert (status, out) == (1, "")
    first, second = err.splitlines()
    assert first.startswith("acpterm: there is no terminal 'none': name one by its id")
    assert second.startswith("acpterm: there is no terminal '\\x1b[31mred'")
    (info,) = await person.list()
    assert info["state"] == "exited"


@pytest.mark.parametrize("command", ["kill", "rm", "promote"])
async def test_without_a_daemon_it_says_so(tmp_path, command):
    status, out, err = await run(str(tmp_path / "agent.sock"), command, "one")
    assert (status, out) == (1, "")
    assert "no daemon listens at" in err


@pytest.mark.parametrize(
    "words", [["kill"], ["rm"], ["promote"], ["rm", "--exited", "one"], ["kill", ""]]
)
async def test_a_wrong_command_line_has_status_2(tmp_path, words):
    status, out, err = await run(str(tmp_path / "agent.sock"), *words)
    assert (status, out) == (2, "")
    assert "Usage: acpterm" in err


async def test_rm_forgets(person, path):
    one = await made(person, "sleep 1000", "one")
    assert await run(path, "rm", one) == (0, "", "")
    assert await person.list(all=True) == []


async def test_rm_exited_takes_what_is_over_and_nothing_that_somebody_needs(person, path):
    mine, running = await made(person, "exit 1"), await made(person, "sleep 1000")
    async with agent_at(path) as agent:
        held = await agent.create("exit 1")
        kept = await agent.create("exit 1")
        await agent.wait(held)
        content = [{"type": "terminal", "terminalId": kept}]
        update = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "content": content}
        await agent.notify("session/update", {"sessionId": agent.session, "update": update})
        await agent.release(kept)
        await person.about("wait", mine)
        assert len(await person.list(all=True)) == 4
        assert await run(path, "rm", "--exited") == (0, "", "")
        assert [one["terminalId"] for one in await person.list(all=True)] == [running, held]
        assert (await agent.output(held))["exitStatus"]["exitCode"] == 1


async def test_rm_exited_has_nothing_to_do_without_a_daemon(tmp_path):
    assert await run(str(tmp_path / "agent.sock"), "rm", "--exited") == (0, "", "")


async def test_promote_makes_it_the_persons(person, path):
    async with agent_at(path) as agent:
        one = await agent.create("sleep 1000")
        assert await run(path, "promote", one) == (0, "", "")
    assert await run(path, "promote", one) == (0, "", "")
    (info,) = await person.list()
    assert (info["owner"], info["state"]) == ("user", "running")
