"""`_acpterm/events` on the agents' socket: events about the session's own terminals."""

import pytest
import trio

from acpterm.acp.agent_api import AgentEventsRequest
from acpterm.host.agent.read_methods import REQUESTS_MAX, events
from acpterm.jsonrpc import INVALID_PARAMS, REQUEST_CANCELLED, RpcError
from tests.support.agent import agent_of
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.user import user_of


def received(agent, token="t"):
    params = [m["params"] for m in agent.messages if m.get("method") == "_acpterm/event"]
    return [one for one in params if one["token"] == token]


async def subscribe(agent, token="t", **more):
    params = {"sessionId": agent.session, "token": token, **more}
    id_ = await agent.start("_acpterm/events", params)
    # The request has no response until it ends; the next one shows that it has begun.
    await agent.request("_acpterm/session/set", {"sessionId": agent.session, "cwd": "/"})
    return id_


async def until(agent, event, token="t"):
    return await poll(
        lambda: next((one for one in received(agent, token) if one["event"] == event), None)
    )


async def test_events_of_a_terminal_are_sent_from_its_start_to_its_end(agent):
    await subscribe(agent)
    terminal = await agent.create("printf 'name? '; read x", own={"name": "ask"})
    waiting = await until(agent, "waiting")
    assert waiting["terminal"]["terminalId"] == terminal
    assert waiting["terminal"]["name"] == "ask"
    await agent.type(terminal, "x\n")
    await agent.wait(terminal)
    exited = await until(agent, "exited")
    assert exited["terminal"]["exitStatus"]["exitCode"] == 0
    assert exited["sessionId"] == agent.session
    await agent.release(terminal)
    await until(agent, "released")
    assert received(agent)[0]["event"] == "created"


async def test_events_of_others_are_not_sent(host, agent):
    async with agent_of(host) as other, user_of(host) as user:
        await subscribe(agent)
        await other.run("true")
        created = await user.request("terminal/create", {"command": "true", "name": "mine"})
        await user.terminal_request("wait", created["terminalId"])
        session = agent.session
        agent.session = "session-2"
        await agent.run("true")
        agent.session = session
        terminal = await agent.create("read x")
        await until(agent, "created")
        assert {one["terminal"]["terminalId"] for one in received(agent)} == {terminal}


async def test_requests_count_from_when_they_are_received(host, agent):
    """Too many are refused, even if they are received before the task of the first one runs."""
    await agent.initialize()
    (connection,) = host.resumption.connections
    requests = [AgentEventsRequest("s", f"t{number}") for number in range(REQUESTS_MAX + 1)]
    handled = [events(connection, one) for one in requests[:-1]]
    with pytest.raises(RpcError, match="are pending on this connection"):
        events(connection, requests[-1])
    handled.append(events(connection, requests[0]))  # replaces the one with the same token
    async with trio.open_nursery() as nursery:
        for one in handled:
            nursery.start_soon(lambda one=one: one)
        await poll(lambda: host.terminals.events.has_subscribers)
        for scope in connection.event_requests.values():
            scope.cancel()
    assert connection.event_requests == {}


async def test_event_lacks_what_concerns_the_user(agent, user):
    await subscribe(agent)
    terminal = await agent.create("read x")
    await user.open("terminal/attach", terminalId=terminal, cols=80, rows=24)
    await until(agent, "resized")
    await user.terminal_request("kill", terminal)
    killed = await until(agent, "killed")
    assert killed["by"] == "user"
    for one in received(agent):
        assert "connection" not in one
        assert (one["terminal"]["connection"], one["terminal"]["attached"]) == (None, 0)
    assert "attached" not in {one["event"] for one in received(agent)}


async def test_promoted_terminal_has_events_until_its_id_is_released(agent, user):
    await subscribe(agent)
    kept, given = [await agent.create("read x") for _ in range(2)]
    for terminal in (kept, given):
        await agent.request("_acpterm/terminal/promote", agent.of(terminal))
    await agent.release(given)
    for terminal in (given, kept):
        await user.terminal_request("rename", terminal, name=f"one-{terminal[-8:]}x")
    renamed = await until(agent, "renamed")
    assert renamed["terminal"]["terminalId"] == kept
    assert [one["event"] for one in received(agent)].count("promoted") == 2


async def test_cancelled_request_ends_and_its_token_is_free(host, agent):
    id_ = await subscribe(agent)
    await agent.cancel(id_)
    with pytest.raises(RpcError) as raised:
        await agent.result(id_)
    assert raised.value.code == REQUEST_CANCELLED
    (connection,) = host.resumption.connections
    assert connection.event_requests == {}
    assert not host.terminals.events.has_subscribers
    await subscribe(agent)
    await agent.create("read x")
    await until(agent, "created")


async def test_repeated_request_replaces_the_one_on_the_lost_transport(host):
    async with agent_of(host) as lost:
        secret = (await lost.initialize())["resume"]
        id_ = await subscribe(lost)
        async with agent_of(host) as agent:
            assert (await agent.initialize(secret))["resumed"] is True
            await agent.start("_acpterm/events", {"sessionId": "session-1", "token": "t"}, id_)
            terminal = await agent.create("read x")
            await until(agent, "created")
            await lost.closed.wait()
            await agent.kill(terminal)
            await until(agent, "killed")
            assert [one["event"] for one in received(agent)].count("created") == 1


async def test_number_of_requests_is_limited(agent):
    for number in range(REQUESTS_MAX):
        await subscribe(agent, f"t{number}")
    with pytest.raises(RpcError, match="are pending on this connection") as raised:
        await agent.request("_acpterm/events", {"sessionId": agent.session, "token": "more"})
    assert raised.value.code == INVALID_PARAMS


async def test_end_of_the_connection_ends_the_request_at_once(host):
    async with agent_of(host) as agent:
        await subscribe(agent)
    with trio.fail_after(DEADLINE_S):
        await poll(lambda: not host.terminals.events.has_subscribers)
