"""What goes wrong between the server, the host and the client, and must not end the server."""

from contextlib import asynccontextmanager

import mcp
import mcp_types as types
import pytest
import trio
from mcp.shared.exceptions import MCPError

import acpterm
from acpterm.api.client import Client
from acpterm.api.errors import ClosedError, DaemonError
from acpterm.config import Settings
from acpterm.config.tools import ToolSettings
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError
from acpterm.mcp.call import Call
from acpterm.mcp.connection import FormQuestion
from acpterm.mcp.questions import Job
from acpterm.mcp.resources import PREFIX, Resources
from acpterm.mcp.sessions import SessionLaunch, Sessions
from acpterm.mcp.shells import Shells
from acpterm.mcp.starting import Start, Starts
from acpterm.mcp.types import CallToolResult
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.mcp import in_process, listening, mcp_tools, result_of
from tests.support.polling import poll
from tests.support.user import user_of


async def answer_nothing(_context, _params):
    return types.ElicitResult(action="cancel")


@asynccontextmanager
async def linked(tmp_path, nursery):
    """Run a host; yield it, and the sessions of a client of it."""
    path = str(tmp_path / "host.sock")
    async with host_here(profile="open") as host, listening(host, path):

        def connect(agent, asks):
            return acpterm.connect(agent=agent, asks=asks, socket=path)

        yield host, Sessions(connect, nursery, "test", str(tmp_path))


async def terminals_of(host):
    async with user_of(host) as user:
        return (await user.request("terminal/list"))["terminals"]


async def test_daemon_that_cannot_start_is_an_error_of_each_call():
    @asynccontextmanager
    async def connect(_agent, _asks):
        raise DaemonError("the daemon cannot be started")
        yield

    async with mcp.Client(in_process("session", Settings(), connect, "/")) as client:
        for _ in range(2):
            result = result_of(await client.call_tool("terminal_start", {"command": "true"}))
            assert result.is_error
            assert "the daemon cannot be started" in result.text


async def test_unknown_profile_is_an_error_of_each_call(tmp_path):
    async with mcp_tools(tmp_path, pool_profile="nope") as tools:
        for _ in range(2):
            result = await tools.call("terminal_start", command="true")
            assert result.is_error
            assert "nope" in result.text


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_call_that_fails_unexpectedly_leaves_the_server_running(tmp_path, monkeypatch, mode):
    async def fail(*_args, **_kwargs):
        raise RuntimeError("unexpected")

    async with mcp_tools(tmp_path, mode=mode, elicit=answer_nothing) as tools:
        with monkeypatch.context() as patch:
            patch.setattr(Client, "create", fail)
            with pytest.raises(MCPError):
                await tools.call("terminal_start", command="true")
        with monkeypatch.context() as patch:
            patch.setattr(Call, "begin", fail)
            with pytest.raises(MCPError):
                await tools.call("terminal_start", command="true")
        result = await tools.call("terminal_bash", command="echo lives")
    assert result.data["output"] == "lives\n"


async def test_late_error_of_a_closed_connection_leaves_the_next_one_open(tmp_path, nursery):
    async with linked(tmp_path, nursery) as (_, sessions):
        first = await sessions.client()
        assert await first.terminals() == []
        first._endpoint.close(RpcError(INTERNAL_ERROR, "gone"))
        with pytest.raises(ClosedError) as caught:
            await first.terminals()
        sessions.disconnected(caught.value)
        second = await sessions.client()
        assert second is not first
        sessions.disconnected(caught.value)
        assert await sessions.client() is second
        assert await second.terminals() == []
        nursery.cancel_scope.cancel()


async def test_program_that_starts_as_its_call_is_cancelled_is_ended(tmp_path, nursery):
    async with linked(tmp_path, nursery) as (host, sessions):
        launch = SessionLaunch("sleep 60")

        async def start_and_cancel():
            session = await sessions.start(launch)
            scope.cancel()
            return session

        with trio.CancelScope() as scope:
            start = Start(launch, None, start_and_cancel, sessions.remove)
            await Call(sessions, Starts(nursery), Shells(nursery), ToolSettings()).begin(start)
        assert scope.cancelled_caught
        assert await terminals_of(host) == []
        assert sessions.all() == []
        nursery.cancel_scope.cancel()


async def test_second_question_waits_for_the_answer_to_the_first(nursery):
    job = Job()

    async def ask(text):
        answer = await job.ask(FormQuestion(text, {}))
        return answer.content["text"]

    async def work(_ask):
        async with trio.open_nursery() as inner:
            inner.start_soon(record, "one")
            inner.start_soon(record, "two")
        return CallToolResult(content=[])

    answers = {}

    async def record(text):
        answers[text] = await ask(text)

    nursery.start_soon(job.run, work)
    with trio.fail_after(DEADLINE_S):
        for _ in range(2):
            question = await job.wait()
            content = {"text": question.message}
            job.answer({"question": {"action": "accept", "content": content}})
            await poll(lambda: question.message in answers)  # noqa: B023
        await job.wait()
    assert answers == {"one": "one", "two": "two"}


@pytest.mark.long
async def test_uri_is_watched_once_for_subscriptions_that_come_at_once(tmp_path, nursery):
    async with linked(tmp_path, nursery) as (_, sessions):
        session = await sessions.start(SessionLaunch("sleep 60"))
        found = await sessions.find(session.id)
        assert found is session

        async def find(_identifier):
            await trio.lowlevel.checkpoint()
            return session

        sessions.find = find
        resources = Resources(nursery)
        watches = []

        async def watch():
            watches.append(await resources._watch(sessions, PREFIX + session.id))

        async with trio.open_nursery() as both:
            both.start_soon(watch)
            both.start_soon(watch)
        first, second = watches
        assert first is second
        assert first.subscribers == 2
        nursery.cancel_scope.cancel()


async def test_watch_of_a_session_that_has_ended_makes_place_for_another(tmp_path, nursery):
    async with linked(tmp_path, nursery) as (_, sessions):
        session = await sessions.start(SessionLaunch("true"))
        resources = Resources(nursery)
        uri = PREFIX + session.id
        first = await resources._watch(sessions, uri)
        await poll(lambda: uri not in resources._watches)
        second = await resources._watch(sessions, uri)
        assert second is not first
        for watch in (first, second):
            resources._unwatch(watch)
        nursery.cancel_scope.cancel()
