"""A host restores itself from the records of a previous worker in a real keeper.

The test acts as the previous worker: it stores records, and dies.
"""

import time
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from acpterm.config import Settings
from acpterm.config.profiles import Limits, Profile
from acpterm.host.open_host import open_host
from acpterm.host.registry import TerminalRegistry
from acpterm.host.state.records import (
    AgentSessionRecord,
    ConnectionRecord,
    ContextRecord,
    HostRecord,
    LimitsRecord,
    StateVersionError,
    TerminalRecord,
)
from acpterm.host.state.snapshot import Snapshot
from acpterm.jsonrpc import RpcError
from acpterm.keeper.ring_file import CONSUMED, HEAD
from acpterm.pty.master import window_size
from acpterm.pty.processes import now
from acpterm.runtime.exec_context import current
from acpterm.terminal.shared_ring import WINDOW_BYTES
from tests.keeper.daemon import daemon
from tests.keeper.terminals import spawn as spawn_in
from tests.support.agent import agent_of
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.processes import alive
from tests.support.user import user_of

SECRET = "5" * 64
CONTEXT = ContextRecord.from_context(current())


RING_SIZE = 64 * 1024


def record(**more):
    fields = {
        "command": "what ran",
        "cwd": b"/",
        "created_time": 1_000_000_000.0,
        "started_at": now() - 10,
        "cols": 80,
        "rows": 24,
        "limit": 10_000,
        "ring_size": RING_SIZE,
        "connection": "c7",
        "agent": "tester",
        "session": "session-1",
    }
    return TerminalRecord(**{**fields, **more})


async def spawn(keeper, line, **more):
    """Start a shell command; none of its output is consumed."""
    size = RING_SIZE + WINDOW_BYTES
    return await spawn_in(keeper, line, ring_size=size, consume=False, **more)


async def leave(worker, **more):
    """Store a connection with a session, as a worker does."""
    stored = {
        "host": HostRecord(started_at=now() - 60, connections=7),
        "c/c7": ConnectionRecord(secret=SECRET, agent="tester", context=CONTEXT),
        "s/c7/0": AgentSessionRecord(id="session-1", cancelled=2),
        **more,
    }
    for key, value in stored.items():
        worker.keeper.put(key, value if isinstance(value, bytes) else value.encode())
    await worker.keeper.flushed()
    worker.kill()


@asynccontextmanager
async def successor(started, **settings):
    """Run a host in this process that restores the records."""
    worker = await started.worker()
    await worker.keeper.connect()
    snapshot = Snapshot.read(worker.keeper.entries)
    async with open_host(Settings(**settings), current(), worker.keeper, snapshot) as host:
        yield host
    worker.kill()


@pytest.mark.long
async def test_terminal_without_a_record_is_ended_and_forgotten(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        nobodys = await spawn(worker.keeper, "sleep 60; :", record=b"damaged")
        whole = await spawn(worker.keeper, "sleep 60; :", record=record().encode())
        await leave(worker)
        async with successor(started) as host:
            await poll(lambda: not alive(nobodys.pid))
            assert alive(whole.pid)
            assert [entry.id for entry in host.terminals.registry] == [whole.name]
        worker = await started.worker()
        await worker.keeper.connect()
        assert not [name for name in worker.keeper.entries if name.startswith(("t/", "s/", "c/"))]


@pytest.mark.costly
@pytest.mark.parametrize("key", ["host", "c/c7", "s/c7/0", "k/c7/0/0", "t/x", "listen/agent"])
async def test_newer_state_is_not_restored_by_an_older_version(tmp_path, key):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        await leave(worker, **{key: msgspec.msgpack.encode((1000, {}))})
        with pytest.raises(StateVersionError, match="state of version 1000"):
            async with successor(started):
                pass


@pytest.mark.long
async def test_terminals_of_a_connection_without_a_record_are_released(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        own_one = await spawn(
            worker.keeper,
            "sleep 60; :",
            record=record(is_users=True, session=None, connection=None, name="mine").encode(),
        )
        promoted = await spawn(
            worker.keeper, "sleep 60; :", record=record(is_users=True, connection="c1").encode()
        )
        gone = await spawn(worker.keeper, "sleep 60; :", record=record(connection="c1").encode())
        await leave(worker)
        async with successor(started) as host, user_of(host) as user:
            await poll(lambda: not alive(gone.pid))
            found = {entry["terminalId"]: entry for entry in await user.list(all=True)}
            assert set(found) == {own_one.name, promoted.name}
            assert found[promoted.name]["connection"] == "c1"
            assert found[promoted.name]["agent"] == "tester"
            assert found[own_one.name]["name"] == "mine"
            assert found[own_one.name]["createdAt"] == 1_000_000_000_000


@pytest.mark.long
async def test_connection_is_rebuilt_from_records_of_its_terminals(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        line = "read x; exit 6"
        terminal = await spawn(worker.keeper, line, record=record(secret=SECRET).encode())
        await worker.keeper.flushed()
        worker.kill()
        async with successor(started) as host, agent_of(host) as agent, user_of(host) as user:
            assert (await agent.initialize(SECRET))["resumed"] is True
            await agent.type(terminal.name, "\n")
            assert (await agent.wait(terminal.name))["exitCode"] == 6
            fresh = await agent.create("sleep 60")
            assert (await user.terminal_request("get", fresh))["connection"] == "c7"
            async with agent_of(host) as other:
                fresh = await other.create("sleep 60")
                assert (await user.terminal_request("get", fresh))["connection"] == "c9"


@pytest.mark.long
async def test_terminal_with_an_invalid_cause_of_its_end_is_ended(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        invalid = record(killed_by="mischance", killed_at=now())
        terminal = await spawn(worker.keeper, "sleep 60; :", record=invalid.encode())
        await leave(worker)
        async with successor(started) as host:
            await poll(lambda: not alive(terminal.pid))
            assert not len(host.terminals.registry)


@pytest.mark.long
async def test_terminal_that_cannot_be_restored_is_ended(tmp_path, monkeypatch):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        terminal = await spawn(worker.keeper, "sleep 60; :", record=record().encode())
        await leave(worker)
        monkeypatch.setattr(TerminalRegistry, "restore", lambda *_: 1 / 0)
        async with successor(started):
            await poll(lambda: not alive(terminal.pid))


async def test_rebuilt_session_has_the_tool_calls_of_its_terminals(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        terminal = await spawn(worker.keeper, "sleep 60; :", record=record(secret=SECRET).encode())
        await worker.keeper.flushed()
        worker.kill()
        async with successor(started) as host, agent_of(host) as agent, user_of(host) as user:
            await agent.initialize(SECRET)
            content = [{"type": "terminal", "terminalId": terminal.name}]
            update = {"sessionUpdate": "tool_call_update", "toolCallId": "call", "content": content}
            await agent.notify("session/update", {"sessionId": agent.session, "update": update})
            await agent.output(terminal.name)
            info = await user.terminal_request("get", terminal.name)
            assert info["toolCalls"] == ["call"]


async def test_released_terminal_does_not_restore_its_session(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        released = {"released_by": "agent", "released_time": time.time(), "released_at": now()}
        fields = {**released, "is_held": False, "tool_calls": ["c"], "session": "dropped"}
        terminal = await spawn(worker.keeper, "echo kept; :", record=record(**fields).encode())
        await terminal.wait_closed()
        await leave(worker)
        async with successor(started) as host, user_of(host) as user:
            (found,) = await user.list(all=True)
            assert (found["sessionId"], found["toolCalls"]) == ("dropped", ["c"])
            assert (found["connection"], found["agent"]) == ("c7", "tester")
            (connection,) = host.resumption.connections
            assert list(connection.sessions) == ["session-1"]


async def test_absent_connection_is_given_up_after_the_timeout(tmp_path, running_clock):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        terminal = await spawn(worker.keeper, "sleep 60; :", record=record().encode())
        await leave(worker)
        async with successor(started, resume_timeout=1000) as host:
            assert host.is_needed()
            assert alive(terminal.pid)
            await trio.testing.wait_all_tasks_blocked()
            running_clock.jump(1000)
            await poll(lambda: not alive(terminal.pid))
            await poll(lambda: not host.is_needed())


async def test_new_connection_gets_a_name_never_used_before(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        await leave(worker)
        async with successor(started) as host, agent_of(host) as agent, user_of(host) as user:
            terminal = await agent.create("sleep 60")
            assert (await user.terminal_request("get", terminal))["connection"] == "c8"


@pytest.mark.long
async def test_terminal_of_a_cancelled_turn_is_released_in_time(tmp_path, running_clock):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        fields = {"killed_by": "agent", "killed_at": now(), "release_at": now() + 1000}
        stubborn = await spawn(
            worker.keeper, "trap '' TERM; sleep 60; :", record=record(**fields).encode()
        )
        await leave(worker)
        async with successor(started, kill_grace=0.2) as host, agent_of(host) as agent:
            assert (await agent.initialize(SECRET))["resumed"] is True
            assert (await agent.wait(stubborn.name))["_meta"]["acpterm"]["endedBy"] == "agent"
            assert len(host.terminals.registry)
            await trio.testing.wait_all_tasks_blocked()
            running_clock.jump(1000)
            await poll(lambda: not len(host.terminals.registry))


@pytest.mark.costly
@pytest.mark.parametrize(
    ("fields", "ended_by"),
    [
        ({}, "exited"),
        ({"killed_by": "user", "killed_at": 0.0}, "user"),
        ({"killed_by": "user", "killed_at": 1e9}, "exited"),
        ({"lifetime_end": 1.0}, "timeout"),
        ({"lifetime_end": 1e9}, "exited"),
    ],
)
async def test_exit_without_a_worker_is_attributed_to_its_cause(tmp_path, fields, ended_by):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        over = await spawn(worker.keeper, "exit 3; :", record=record(**fields).encode())
        await over.wait_closed()
        await leave(worker)
        async with successor(started) as host, agent_of(host) as agent:
            await agent.initialize(SECRET)
            status = await agent.wait(over.name)
            assert status["exitCode"] == 3
            assert status["_meta"]["acpterm"]["endedBy"] == ended_by
            assert 9_000 < status["_meta"]["acpterm"]["wallMs"] < 60_000


@pytest.mark.costly
@pytest.mark.parametrize(
    ("fields", "line", "ended_by", "limit"),
    [
        ({"limits": {"idle": 7}, "killed_by": "idle", "killed_at": 0.0}, ":", "idle", "idle"),
        ({"lifetime_limit": ("wall", 7), "lifetime_end": 1.0}, ":", "timeout", "wall"),
        ({"limits": {"file_size": 7}}, "kill -XFSZ $$", "limit", "file_size"),
        ({"limits": {"idle": 7}}, ":", "exited", None),
    ],
)
async def test_limit_that_ended_a_program_without_a_worker_is_reported(
    tmp_path, fields, line, ended_by, limit
):
    if "limits" in fields:
        fields = {**fields, "limits": LimitsRecord(**fields["limits"])}
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        over = await spawn(worker.keeper, f"{line}; :", record=record(**fields).encode())
        await over.wait_closed()
        await leave(worker)
        async with successor(started) as host, agent_of(host) as agent:
            await agent.initialize(SECRET)
            meta = (await agent.wait(over.name))["_meta"]["acpterm"]
            expected = (ended_by, limit, limit and 7)
            assert (meta["endedBy"], meta.get("limit"), meta.get("limitValue")) == expected


@pytest.mark.long
async def test_terminal_may_idle_for_its_limit_after_a_takeover(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        fields = {"limits": LimitsRecord(idle=0.3)}
        idle = await spawn(worker.keeper, "sleep 60; :", record=record(**fields).encode())
        users = record(**fields, is_users=True)
        other = await spawn(worker.keeper, "sleep 60; :", record=users.encode())
        await leave(worker)
        began = trio.current_time()
        async with successor(started) as host, agent_of(host) as agent:
            await agent.initialize(SECRET)
            meta = (await agent.wait(idle.name))["_meta"]["acpterm"]
            assert (meta["endedBy"], meta["limitValue"]) == ("idle", 0.3)
            assert trio.current_time() - began >= 0.3
            assert host.terminals.registry.get(other.name).terminal.exit is None


async def test_times_of_starts_are_restored_with_the_connection(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        stored = ConnectionRecord(secret=SECRET, context=CONTEXT, starts=[now() - 5, now() - 1])
        await leave(worker, **{"c/c7": stored})
        async with successor(started) as host, agent_of(host) as agent:
            await agent.initialize(SECRET)
            restored = next(c for c in host.resumption.connections if c.id == "c7")
            assert restored.starts == stored.starts
            with pytest.raises(RpcError, match="Spawn rate limit exceeded"):
                host.guard.quotas.check(
                    Profile(name="two", limits=Limits(starts_per_minute=2)), restored, "session-1"
                )


@pytest.mark.long
async def test_window_size_is_kept_until_the_resume_timeout(tmp_path, running_clock):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        line = "trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done"
        terminal = await spawn(
            worker.keeper, line, size=(100, 30), record=record(cols=80, rows=24).encode()
        )
        await poll(lambda: terminal.ring.header[HEAD] > 0)
        await leave(worker)
        async with successor(started, resume_timeout=1000) as host, agent_of(host) as agent:
            await agent.initialize(SECRET)
            assert (await agent.output(terminal.name))["output"] == "30 100\n"
            running_clock.jump(1000)
            await agent.until_output(terminal.name, "24 80")


LOST = """
trap {trap} WINCH
paint() {{ printf '\\033[2J\\033[HHEADER\\033[3;1Hline 3'; }}
paint; printf '\\033[4;1Hline 4'
while :; do sleep 0.02; done
"""


@pytest.mark.long
@pytest.mark.parametrize("trap", ["paint", "''"])
async def test_lost_screen_says_so_until_the_program_draws_it(tmp_path, trap):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        terminal = await spawn(worker.keeper, LOST.format(trap=trap), record=record().encode())
        header = terminal.ring.header
        await poll(lambda: bytes(terminal.ring.data[: header[HEAD]]).endswith(b"line 4"))
        # The worker has released the output before the last line, and has stored no state.
        header[CONSUMED] = header[HEAD] - len("\x1b[4;1Hline 4")
        await leave(worker)
        async with successor(started) as host, user_of(host) as user:
            found = await user.terminal_request("screen", terminal.name)
            if trap == "paint":
                with trio.fail_after(DEADLINE_S):
                    while "not known" in str(found["rows"]):
                        await trio.sleep(0.01)
                        found = await user.terminal_request("screen", terminal.name)
                assert found["rows"][:3] == ["HEADER", "", "line 3"]
                await poll(lambda: window_size(terminal.master) == (80, 24))
            else:
                assert "[not known until the program draws it]" in found["rows"][0]
                assert found["rows"][3].startswith("line 4")
            assert alive(terminal.pid)


async def test_released_terminal_is_retained_only_if_shown(tmp_path):
    async with daemon(tmp_path) as started:
        worker = await started.serving()
        released = {"released_by": "agent", "released_time": time.time(), "released_at": now()}
        shown = record(**released, is_held=False, tool_calls=["c"])
        hidden = record(**released, is_held=False)
        kept = await spawn(worker.keeper, "echo kept; :", record=shown.encode())
        gone = await spawn(worker.keeper, "echo gone; :", record=hidden.encode())
        for terminal in (kept, gone):
            await terminal.wait_closed()
        await leave(worker)
        async with successor(started) as host, user_of(host) as user:
            (found,) = await user.list(all=True)
            assert (found["terminalId"], found["toolCalls"]) == (kept.name, ["c"])
            assert found["state"] == "released"
            with trio.fail_after(DEADLINE_S):
                while (await user.terminal_request("output", kept.name))["text"] != "kept\n":
                    await trio.sleep(0.01)
