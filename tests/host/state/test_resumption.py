"""Resumption of connections while the worker lives, and deletion of stored records."""

import errno
import os

import pytest
import trio

from acpterm.jsonrpc import RpcError
from tests.support.agent import agent_of
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.keepers import SlowKeeper
from tests.support.polling import poll
from tests.support.processes import alive
from tests.support.user import user_of


async def test_resumed_connection_closes_the_old_transport(host, user):
    async with agent_of(host) as old:
        secret = (await old.initialize())["resume"]
        terminal = await old.create("echo $$; read line; exit 4")
        pid = int(await old.until_output(terminal, "\n"))
        name = (await user.terminal_request("get", terminal))["connection"]
        async with agent_of(host) as new:
            assert await new.initialize(secret) == {"resume": secret, "resumed": True}
            await old.closed.wait()
            assert alive(pid)
            waiting = await new.start("terminal/wait_for_exit", new.of(terminal))
            await new.type(terminal, "\n")
            assert (await new.result(waiting))["exitCode"] == 4
            assert (await user.terminal_request("get", terminal))["connection"] == name
            again = await new.create("echo more")
            assert (await user.terminal_request("get", again))["connection"] == name
        await poll(lambda: not host.daemon.agents)
        assert await user.list(all=True) == []


async def test_unknown_secret_begins_a_connection_with_a_new_secret(agent):
    own = await agent.initialize("0" * 64)
    assert own["resumed"] is False
    assert len(own["resume"]) == 64
    assert own["resume"] != "0" * 64
    assert await agent.initialize() == {"resume": own["resume"]}
    assert (await agent.initialize(own["resume"]))["resumed"] is True


async def test_secret_of_an_ended_connection_is_unknown(host):
    async with agent_of(host) as agent:
        secret = (await agent.initialize())["resume"]
    await poll(lambda: not host.daemon.agents)
    async with agent_of(host) as agent:
        assert (await agent.initialize(secret))["resumed"] is False


@each_case("secret", [1, [], {}, ""])
async def test_invalid_secret_is_refused_or_unknown(agent, secret):
    if secret == "":
        assert (await agent.initialize(secret))["resumed"] is False
    else:
        with pytest.raises(RpcError, match="resume"):
            await agent.initialize(secret)


async def test_initialize_with_an_invalid_context_resumes_nothing(host):
    async with agent_of(host) as old, agent_of(host) as fresh:
        secret = (await old.initialize())["resume"]
        own = {"resume": secret, "context": {"cwd": "relative"}}
        with pytest.raises(RpcError, match="'relative' is not absolute"):
            await fresh.request("initialize", {"protocolVersion": 1, "_meta": {"acpterm": own}})
        assert (await old.run("echo served"))[0] == "served\n"
        assert (await fresh.initialize(secret))["resumed"] is True


async def test_connection_with_terminals_cannot_resume_another(host):
    async with agent_of(host) as one, agent_of(host) as other:
        secret = (await one.initialize())["resume"]
        await other.create("sleep 60")
        with pytest.raises(RpcError, match="comes before every other request"):
            await other.initialize(secret)


async def test_agent_without_initialize_never_notices(agent):
    assert (await agent.run("echo it"))[0] == "it\n"


async def test_create_that_was_in_flight_is_answered_on_the_new_connection(tmp_path):
    ran = tmp_path / "ran"
    params = {"sessionId": "session-1", "command": f"echo ran >> {ran}; sleep 60"}
    async with host_here() as host, agent_of(host) as old:
        secret = (await old.initialize())["resume"]
        keeper = host.terminals.pool._keeper
        host.terminals.pool._keeper = slow = SlowKeeper(keeper)
        id_ = await old.start("terminal/create", params)
        await slow.requested.wait()
        async with agent_of(host) as new, trio.open_nursery() as nursery:
            assert (await new.initialize(secret))["resumed"] is True
            created = []

            async def create():
                created.append(await new.repeat(id_, "terminal/create", params))

            nursery.start_soon(create)
            await trio.sleep(0.05)
            assert not created
            slow.may_respond.set()
            with trio.fail_after(DEADLINE_S):
                while not created:
                    await trio.sleep(0.01)
            await poll(lambda: ran.exists() and ran.read_text())
            assert [entry.id for entry in host.terminals.registry] == [created[0]["terminalId"]]
            await trio.sleep(0.1)
            assert ran.read_text() == "ran\n"


class FailingKeeper(SlowKeeper):
    """A keeper that cannot start a program, and says so when `may_respond` is set."""

    async def spawn(self, *_, **__):
        self.requested.set()
        with trio.CancelScope(shield=True):
            await self.may_respond.wait()
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


async def test_id_of_a_repeated_create_is_new_again_although_the_first_one_made_no_terminal():
    params = {"sessionId": "session-1", "command": "sleep 60"}
    async with host_here() as host, agent_of(host) as old:
        secret = (await old.initialize())["resume"]
        keeper = host.terminals.pool._keeper
        host.terminals.pool._keeper = failing = FailingKeeper(keeper)
        id_ = await old.start("terminal/create", params)
        await failing.requested.wait()
        async with agent_of(host) as new:
            assert (await new.initialize(secret))["resumed"] is True
            host.terminals.pool._keeper = keeper
            failing.may_respond.set()
            repeated = await _create_as(new, id_, params)
            assert await _create_as(new, id_, params) != repeated


async def test_create_that_is_repeated_after_each_of_two_losses_is_executed_once():
    params = {"sessionId": "session-1", "command": "sleep 60"}
    async with host_here() as host, agent_of(host) as first, agent_of(host) as second:
        secret = (await first.initialize())["resume"]
        keeper = host.terminals.pool._keeper
        host.terminals.pool._keeper = failing = FailingKeeper(keeper)
        id_ = await first.start("terminal/create", params)
        await failing.requested.wait()
        await second.initialize(secret)
        await second.start("terminal/create", params, id_)
        async with agent_of(host) as third:
            await third.initialize(secret)
            host.terminals.pool._keeper = keeper
            failing.may_respond.set()
            terminal = await _create_as(third, id_, params)
            assert [entry.id for entry in host.terminals.registry] == [terminal]


async def test_create_with_a_null_or_long_id_is_never_a_repetition(host):
    async with agent_of(host) as old:
        secret = (await old.initialize())["resume"]
        params = {"sessionId": "session-1", "command": "sleep 60"}
        long = "x" * 300
        await old.repeat(1000, "terminal/create", params)
        first = await _create_as(old, long, params)
        async with agent_of(host) as new:
            await new.initialize(secret)
            assert await _create_as(new, long, params) != first


async def _create_as(agent, id_, params):
    return (await agent.repeat(id_, "terminal/create", params))["terminalId"]


async def test_events_name_connected_and_disconnected_connections(host, user):
    _, token = await user.open("events")
    await poll(lambda: host.terminals.events.has_subscribers)
    async with agent_of(host) as old:
        secret = (await old.initialize())["resume"]
        async with agent_of(host) as new:
            await new.initialize(secret)
    events = await user.until(lambda: _changes(user, token, 6))
    assert events == [
        ("connected", "c1"),
        ("connected", "c2"),
        ("disconnected", "c1"),
        ("disconnected", "c2"),
        ("connected", "c1"),
        ("disconnected", "c1"),
    ]


def _changes(user, token, count):
    events = [message["params"] for message in user.by_token[token]]
    names = [(event["event"], event["connection"]) for event in events]
    return names if len(names) >= count else None


class Spy:
    """Records in `keys` which keys are in the store of a keeper."""

    def __init__(self, keeper, monkeypatch):
        self.keys = set()
        put, delete, forget, spawn = keeper.put, keeper.delete, keeper.forget, keeper.spawn

        def note_put(key, value, fds=()):
            self.keys.add(key)
            put(key, value, fds)

        def note_delete(key):
            self.keys.discard(key)
            delete(key)

        def note_forget(name):
            self.keys.discard(f"t/{name}")
            forget(name)

        async def note_spawn(name, *arguments, **more):
            self.keys.add(f"t/{name}")
            return await spawn(name, *arguments, **more)

        for name, function in {
            "put": note_put,
            "delete": note_delete,
            "forget": note_forget,
            "spawn": note_spawn,
        }.items():
            monkeypatch.setattr(keeper, name, function)


@pytest.mark.long
async def test_records_of_ended_connections_are_deleted(host, monkeypatch):
    spy = Spy(host.keeper, monkeypatch)
    async with agent_of(host) as agent:
        await agent.initialize()
        for number in range(5):
            agent.session = f"session-{number % 2}"
            shown = await agent.create("echo shown")
            await agent.wait(shown)
            update = {"sessionUpdate": "tool_call", "toolCallId": f"c{number}", "title": "t"}
            update["content"] = [{"type": "terminal", "terminalId": shown}]
            params = {"sessionId": agent.session, "update": update}
            await agent.notify("session/update", params)
            await agent.release(shown)
            await agent.run("echo gone")
            left = await agent.create("sleep 60")
        kinds = {key.partition("/")[0] for key in spy.keys}
        assert kinds == {"host", "audit", "c", "s", "k", "t"}
    await poll(lambda: not host.daemon.agents)
    async with user_of(host) as user:
        retained = {entry["terminalId"] for entry in await user.list(all=True)}
        await poll(lambda: spy.keys - {"host", "audit"} == {f"t/{id_}" for id_ in retained})
        assert left not in retained
        for id_ in retained:
            await user.terminal_request("release", id_)
        await poll(lambda: not spy.keys - {"host", "audit"})
