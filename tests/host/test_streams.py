"""Backpressure and dying peers: a peer that does not read delays no other and takes no memory."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from acpterm.host.agent.methods import AGENT_METHODS
from acpterm.host.user.methods import USER_METHODS
from acpterm.runtime.send_queue import HIGH_WATER_BYTES, SendQueue
from acpterm.terminal.terminal import Terminal
from tests.support.agent import agent_at, agent_of, agent_on
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_on_stdio, host_here
from tests.support.polling import poll
from tests.support.processes import alive, environment
from tests.support.user import user_of

MIB = 1 << 20


def memory(pid: int) -> int:
    """Return the resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


CREATE = (
    b'{"jsonrpc":"2.0","id":1,"method":"terminal/create",'
    b'"params":{"sessionId":"s","command":"sleep 60"}}\n'
)


class Mute:
    """An agent that sends requests and does not read."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.number = 0
        self.rest = b""

    def line(self, method: str, **params) -> bytes:
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method}
        return json.dumps(message | {"params": {"sessionId": "s", **params}}).encode() + b"\n"

    def create(self, command: str) -> str:
        """Create a terminal, and read only that response."""
        self.socket.sendall(self.line("terminal/create", command=command))
        answer = b""
        while not answer.endswith(b"\n"):
            answer += self.socket.recv(1000)
        return json.loads(answer)["result"]["terminalId"]

    async def ask(self, terminal: str, count: int) -> None:
        """Request output while the host accepts requests, at most `count` times."""
        self.socket.setblocking(False)
        for _ in range(count):
            # Long ones, since a socket buffers some 200 kB.
            self.rest += self.line("terminal/output", terminalId=terminal, unknown="x" * 20_000)
        while self.rest:
            with trio.move_on_after(0.5) as timeout:
                await trio.lowlevel.wait_writable(self.socket)
            if timeout.cancelled_caught:
                return
            self.rest = self.rest[self.socket.send(self.rest) :]

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def mutes():
    created = []
    yield lambda path: created.append(Mute(path)) or created[-1]
    for mute in created:
        mute.close()


@pytest.mark.long
async def test_peer_that_reads_nothing_slows_no_terminal_and_no_other_peer(tmp_path, mutes):
    go, done = tmp_path / "go", tmp_path / "done"
    async with daemon(tmp_path) as (process, path), agent_at(path) as agent:
        await agent.run("true")
        mute = mutes(path)
        terminal = mute.create(
            f"head -c 2000000 /dev/zero | tr '\\0' x; until [ -e {go} ]; do sleep 0.02; done; "
            f"head -c 40000000 /dev/zero | tr '\\0' y; touch {done}; sleep 60"
        )
        before = memory(process.pid)
        await mute.ask(terminal, 300)
        assert mute.rest, "the host should take no more requests of an agent that does not read"
        go.touch()
        answered = 0
        while not done.exists():
            assert (await agent.run(f"echo {answered}"))[0] == f"{answered}\n"
            answered += 1
        assert answered > 2
        assert memory(process.pid) - before < 32 * MIB

        # When it finally reads, it gets every response, and each is complete. Those to requests
        # that waited for the output to be consumed may be in another order.
        accepted = mute.number - mute.rest.count(b"\n")
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(mute.socket.dup()))
        received = bytearray()
        with trio.fail_after(DEADLINE_S):
            while received.count(b"\n") < accepted - 1:
                received += await stream.receive_some(MIB)
        answers = [json.loads(line) for line in received.splitlines()[: accepted - 1]]
        assert sorted(answer["id"] for answer in answers) == list(range(2, accepted + 1))
        assert {len(answer["result"]["output"]) for answer in answers[-3:]} == {MIB}
        await stream.aclose()


@pytest.mark.long
async def test_peer_that_reads_nothing_takes_little_memory(tmp_path, mutes):
    """3,000 reads are pending when a program prints 3 MB: their responses together stay small."""
    async with daemon(tmp_path) as (process, path):
        mute = mutes(path)
        terminal = mute.create("read line; head -c 3000000 /dev/zero | tr '\\0' x; sleep 60")
        before = memory(process.pid)
        asks = [
            mute.line("_acpterm/terminal/read", terminalId=terminal, since=0, waitMs=60_000)
            for _ in range(3000)
        ]
        mute.socket.sendall(b"".join(asks))
        mute.socket.sendall(mute.line("_acpterm/terminal/write", terminalId=terminal, data="go\n"))
        async with agent_at(path) as agent:
            for _ in range(20):
                assert (await agent.run("echo served"))[0] == "served\n"
        assert memory(process.pid) - before < 64 * MIB


@pytest.mark.costly
@pytest.mark.parametrize(
    ("methods", "method", "own"),
    [
        (AGENT_METHODS, "terminal/output", {}),
        (AGENT_METHODS, "terminal/output", {"format": "screen"}),
        (AGENT_METHODS, "_acpterm/terminal/read", {"format": "screen"}),
        (USER_METHODS, "_acpterm/terminal/output", {}),
        (USER_METHODS, "_acpterm/terminal/screen", {}),
        (USER_METHODS, "_acpterm/terminal/read", {"format": "screen"}),
    ],
)
@pytest.mark.long
async def test_responses_to_a_peer_that_reads_nothing_are_not_built(
    monkeypatch, methods, method, own
):
    """Not even if all requests wait for the output to be consumed, and then continue together."""
    monkeypatch.setattr(Terminal, "catch_up", lambda _: False)
    async with host_here() as host, agent_of(host) as agent, user_of(host) as user:
        terminal = await agent.create(
            "head -c 199000 /dev/zero | tr '\\0' x; sleep 60",
            own={"cols": 500, "rows": 400, **own},
        )
        await agent.until_output(terminal, "x", count=199_000)
        client = agent if methods is AGENT_METHODS else user
        (connection,) = (one for one in host._connections if one._methods is methods)
        client.pause()
        params = agent.of(terminal, **own)
        requests = [client.prepare(method, params) for _ in range(20)]
        lock = host.terminals.pool.terminals[terminal]._consumer._turns._lock
        async with lock:
            await client.send(b"".join(line for _, line in requests))
            await poll(lambda: lock.statistics().tasks_waiting >= len(requests))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert connection._queue._size < connection._queue._high_water + MIB
        client.resume()
        for id_, _ in requests:
            await client.result(id_)


@pytest.mark.long
async def test_unread_terminal_takes_only_its_retained_output(tmp_path):
    async with daemon(tmp_path) as (process, path), agent_at(path) as agent:
        await agent.run("true")
        before = memory(process.pid)
        terminal = await agent.create("head -c 60000000 /dev/zero | tr '\\0' x; echo; echo end")
        await agent.wait(terminal)
        assert memory(process.pid) - before < 16 * MIB
        assert (await agent.output(terminal))["output"].endswith("x\nend\n")


@pytest.mark.long
async def test_peer_on_pipes_that_reads_nothing_slows_no_terminal(tmp_path):
    done = tmp_path / "done"
    async with agent_on_stdio(tmp_path) as (process, agent):
        command = "head -c 2000000 /dev/zero | tr '\\0' x; read line; yes | head -c 9000000; "
        terminal = await agent.create(f"{command} touch {done}; sleep 60")
        await agent.until_output(terminal, "x" * MIB)
        write, line = agent.prepare("_acpterm/terminal/write", agent.of(terminal, data="go\n"))
        lines = [agent.prepare("terminal/output", agent.of(terminal))[1] for _ in range(3)]
        # In one write, before this process, which is the reader, runs again.
        fd = agent.stream.send_stream.fileno()
        os.write(fd, line + b"".join(lines))
        before = memory(process.pid)
        deadline = time.monotonic() + 15
        while not done.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)  # noqa: ASYNC251  nothing is read meanwhile, on purpose
        assert memory(process.pid) - before < 32 * MIB
        assert (await agent.result(write))["written"] == 3
        assert (await agent.output(terminal))["output"].endswith("y\ny\n")


# Peers that die


async def leave_abruptly(host, data: bytes) -> None:
    """Connect, send a request, and disconnect without reading the response."""
    ours, theirs = socket.socketpair()
    async with trio.open_nursery() as nursery:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
        nursery.start_soon(host.serve, stream, host.context)
        await trio.testing.wait_all_tasks_blocked(0.01)
        ours.sendall(data)
        await trio.testing.wait_all_tasks_blocked(0.01)
        ours.close()


@pytest.mark.costly
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"jsonrpc":"2.0","id":1,"method":"terminal/create","params":{"sessionId":"s","comma',
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n{"json',
        CREATE,
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
async def test_peer_that_disconnects_at_any_time_leaves_nothing(host, data):
    async with agent_of(host) as other:
        terminal = await other.create("read line; echo got $line")
        with trio.fail_after(DEADLINE_S):
            await leave_abruptly(host, data)
            await poll(lambda: len(host.terminals.pool.terminals) == 1)
        await other.type(terminal, "it\n")
        await other.wait(terminal)
        assert (await other.output(terminal))["output"].endswith("got it\n")


@pytest.mark.long
async def test_peer_that_disconnects_during_a_create_leaves_no_terminal(tmp_path):
    """Disconnect before, during and after the start of the program."""
    async with daemon(tmp_path) as (process, path):
        marker = f"sleep 61.{os.getpid()}"
        create = {"sessionId": "s", "command": marker}
        line = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "terminal/create", "params": create}
        )
        for number in range(40):
            with socket.socket(socket.AF_UNIX) as stream:
                stream.connect(path)
                stream.sendall(line.encode() + b"\n")
                await trio.sleep(number / 8000)
        await poll(lambda: not running(marker))
        async with agent_at(path) as agent:
            assert (await agent.run("echo served"))[0] == "served\n"
        # The daemon may have read the last requests after the first poll.
        await poll(lambda: not running(marker))
        process.terminate()
        assert await process.wait() == 0


def running(command: str) -> list[str]:
    """Return the processes whose command line contains `command`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            if command.encode() in line:
                found.append(name)
    return found


async def test_peer_that_ended_its_stream_is_still_answered(host):
    ours, theirs = trio.socket.socketpair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.serve, trio.SocketStream(theirs), host.context)
        async with agent_on(trio.SocketStream(ours)) as agent:
            terminal = await agent.create("sleep 60")
            wait = await agent.start("terminal/wait_for_exit", agent.of(terminal))
            missing = await agent.start("terminal/output", agent.of("none"))
            ours.shutdown(socket.SHUT_WR)
            status = await agent.result(wait)
            assert status["_meta"]["acpterm"]["endedBy"] == "disconnect"
            await agent.closed.wait()
            assert agent.has_response(missing)


@pytest.mark.long
async def test_terminals_of_a_killed_agent_are_ended(tmp_path):
    pids = tmp_path / "pids"
    program = (
        "import socket, sys, time\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "s.sendall(sys.argv[2].encode() + b'\\n' + sys.argv[2].encode()[:40]); time.sleep(60)\n"
    )
    command = f"trap '' HUP; echo $$ >{pids}; while :; do sleep 1; done"
    create = {"sessionId": "s", "command": command}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "terminal/create", "params": create})
    async with daemon(tmp_path) as (_, path):
        agent = start_agent(program, path, line)
        try:
            await poll(lambda: pids.exists() and pids.read_text().endswith("\n"))
        finally:
            agent.kill()
            agent.wait()
        await poll(lambda: not alive(int(pids.read_text())))


def start_agent(program: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["python3", "-c", program, *arguments], env=environment())


class Faulty(trio.abc.Stream):
    """A socket stream that fails with an unexpected error."""

    def __init__(self, sock) -> None:
        self._stream = trio.SocketStream(sock)
        self.socket = sock

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await self._stream.receive_some(max_bytes)
        raise ArithmeticError

    async def send_all(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def test_connection_that_fails_unexpectedly_ends_no_other(host):
    async with agent_of(host) as other, trio.open_nursery() as nursery:
        ours, theirs = trio.socket.socketpair()
        with capture_logs() as logs:
            nursery.start_soon(host.serve_agent_socket, Faulty(theirs))
            async with agent_on(trio.SocketStream(ours)) as agent:
                await agent.send(b"{}\n")
                await agent.closed.wait()
            assert (await other.run("echo served"))[0] == "served\n"
        assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == [
            "a connection failed"
        ]


# The send queue alone


async def test_queued_lines_are_sent_in_order_and_complete():
    ours, theirs = trio.testing.memory_stream_one_way_pair()
    outbox = SendQueue(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        for number in range(1000):
            outbox.put(b"%d\n" % number)
            if number % 100 == 0:
                await trio.lowlevel.checkpoint()
        outbox.close()
        outbox.put(b"too late\n")
    await ours.aclose()
    received = b""
    while data := await theirs.receive_some():
        received += data
    assert received == b"".join(b"%d\n" % number for number in range(1000))


async def test_queue_drains_below_its_high_water_mark():
    ours, theirs = trio.testing.lockstep_stream_one_way_pair()
    outbox = SendQueue(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        outbox.put(b"x" * HIGH_WATER_BYTES)
        await outbox.drain()
        outbox.put(b"y")
        with trio.move_on_after(0.02) as full:
            await outbox.drain()
        assert full.cancelled_caught
        received = 0
        while received < HIGH_WATER_BYTES + 1:
            received += len(await theirs.receive_some(MIB))
        await outbox.drain()
        nursery.cancel_scope.cancel()


class FullStore:
    """A store that cannot be flushed until `make_room`."""

    def __init__(self):
        self._room = trio.Event()

    @property
    def is_flushed(self):
        return self._room.is_set()

    async def flushed(self):
        await self._room.wait()

    def make_room(self):
        self._room.set()


async def test_response_is_sent_after_its_state_was_stored():
    ours, theirs = trio.socket.socketpair()
    store = FullStore()
    outbox = SendQueue(trio.SocketStream(ours), store=store)
    with ours, theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.run)
            outbox.put(b"first\n")
            with trio.move_on_after(0.05) as waited:
                await theirs.recv(100)
            assert waited.cancelled_caught
            outbox.put(b"second\n")
            store.make_room()
            received = b""
            while len(received) < len(b"first\nsecond\n"):
                received += await theirs.recv(100)
            assert received == b"first\nsecond\n"
            outbox.put(b"third\n")
            assert await theirs.recv(100) == b"third\n"
            nursery.cancel_scope.cancel()
