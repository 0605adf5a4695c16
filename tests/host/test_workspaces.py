"""A sandboxed program of an agent may write only in the directory that the user's client opens."""

import shutil
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from acpterm.acp.approvals import ApproverRequest
from acpterm.config import Settings
from acpterm.host.agent import connection as connection_module
from acpterm.host.open_host import open_host
from acpterm.jsonrpc import INVALID_REQUEST, RpcError
from acpterm.runtime.exec_context import current
from tests.support.agent import agent_of, agent_on
from tests.support.sandboxes import place as new_place

OPEN, SET = "_acpterm/session/open", "_acpterm/session/set"

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="requires bwrap: apt-get install bubblewrap"
)


@pytest.fixture
def place():
    with new_place(repository=False) as found:
        yield found


@asynccontextmanager
async def host_in(directory, provider="bubblewrap"):
    """Run a host whose clients work in `directory`."""
    settings = Settings(provider=provider, rules="/dev/null")
    context = current()._replace(cwd=str(directory))
    async with open_host(settings, context) as host:
        yield host


@asynccontextmanager
async def approver_of(host):
    ours, theirs = trio.socket.socketpair()
    async with trio.open_nursery() as nursery:
        serve = partial(host.serve, approver=ApproverRequest("editor"))
        nursery.start_soon(serve, trio.SocketStream(theirs), host.context)
        async with agent_on(trio.SocketStream(ours)) as agent:
            yield agent


def in_directory(agent, path):
    return {"sessionId": agent.session, "cwd": str(path)}


def session_of(host, identifier="session-1"):
    return next(one for one in host.resumption.sessions() if one.id == identifier)


async def can_write(agent, path):
    """Try to write in a directory, and return whether that has worked."""
    target = path / "written"
    _, status = await agent.run(f"echo x > {target}")
    assert (status["exitCode"] == 0) == target.exists()
    return target.exists()


async def test_agent_cannot_open_a_session(tmp_path):
    async with host_in(tmp_path, "local") as host, agent_of(host) as agent:
        with pytest.raises(RpcError, match="cannot choose where its programs may write") as error:
            await agent.request(OPEN, in_directory(agent, tmp_path))
        assert error.value.code == INVALID_REQUEST
        assert not list(host.resumption.sessions())
        await agent.request(SET, in_directory(agent, tmp_path))
        assert session_of(host).workspace is None


async def test_opened_session_has_the_directory_as_workspace_and_as_default(tmp_path):
    async with host_in("/", "local") as host, approver_of(host) as agent:
        await agent.request(OPEN, in_directory(agent, tmp_path))
        assert session_of(host).workspace == str(tmp_path)
        output, _ = await agent.run("pwd")
        assert output == f"{tmp_path}\n"
        await agent.request(SET, in_directory(agent, "/"))
        assert session_of(host).workspace == str(tmp_path)
        with pytest.raises(RpcError, match="absolute"):
            await agent.request(OPEN, in_directory(agent, "relative"))
        assert session_of(host).workspace == str(tmp_path)


async def test_memory_of_the_workspace_is_counted(tmp_path):
    async with host_in(tmp_path, "local") as host, approver_of(host) as agent:
        await agent.request(SET, in_directory(agent, "/"))
        before = session_of(host).size
        await agent.request(OPEN, in_directory(agent, f"/{'x' * 3000}"))
        assert session_of(host).size - before > 5500
        assert host.resumption.session_memory.total == session_of(host).size


@needs_bubblewrap
@pytest.mark.long
async def test_sandbox_follows_the_opened_session_and_not_what_the_agent_sets(place):
    async with host_in(place.home) as host, approver_of(host) as agent:
        await agent.request(OPEN, in_directory(agent, place.workspace))
        assert await can_write(agent, place.workspace)
        assert not await can_write(agent, place.outside)
        await agent.request(SET, in_directory(agent, place.outside))
        assert not await can_write(agent, place.outside)
        assert not await can_write(agent, place.home)
        _, status = await agent.run("touch here", cwd=str(place.outside))
        assert status["exitCode"] != 0
        # The user's client may open the session again, in another directory.
        await agent.request(OPEN, in_directory(agent, place.outside))
        assert await can_write(agent, place.outside)


@needs_bubblewrap
@pytest.mark.long
async def test_agent_of_an_approver_cannot_name_a_session_that_was_not_opened(place):
    """Its programs could otherwise write in the approver's directory, such as the user's home."""
    async with host_in(place.home) as host, approver_of(host) as agent:
        await agent.request(OPEN, in_directory(agent, place.workspace))
        agent.session = "invented"
        for _ in range(2):
            with pytest.raises(RpcError, match="has not opened the session") as error:
                await agent.create(f"touch {place.home}/written")
            assert error.value.code == INVALID_REQUEST
            await agent.request(SET, in_directory(agent, place.home))
        assert not (place.home / "written").exists()


@needs_bubblewrap
@pytest.mark.long
async def test_agent_without_an_approver_writes_in_its_directory_only(place):
    async with host_in(place.workspace) as host, agent_of(host) as agent:
        await agent.request(SET, in_directory(agent, place.outside))
        assert not await can_write(agent, place.outside)
        assert await can_write(agent, place.workspace)


async def test_dropped_session_does_not_leave_its_workspace_to_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(connection_module, "SESSIONS_MAX", 1)
    async with host_in(tmp_path, "local") as host, approver_of(host) as agent:
        await agent.request(OPEN, in_directory(agent, tmp_path))
        for session in "other", "session-1":
            await agent.request(SET, {"sessionId": session, "cwd": "/"})
            assert session_of(host, session).workspace is None
