"""`acpterm stdio` with a daemon: messages, shutdown of either side, and terminals."""

import fcntl
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import termios
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from acpterm.agents import stdio
from acpterm.config import Settings
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import DaemonError
from acpterm.runtime.exec_context import current
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_on_stdio
from tests.support.polling import poll
from tests.support.processes import alive, environment, process

MIB = 1 << 20
HELLO = b'{"jsonrpc":"2.0","id":0,"result":{}}\n'


class Place:
    """The location of a test's own daemon."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "run" / "agent.sock"
        self.env = environment(
            XDG_CONFIG_HOME=str(directory / "none"),
            ACPTERM_SOCKET=str(self.socket),
            ACPTERM_IDLE_EXIT="0.7",
        )

    @property
    def daemon(self) -> int:
        """The daemon's pid."""
        return int(Path(f"{self.socket}.log").read_text().split()[0])


@pytest.fixture
def place(tmp_path):
    """The place of a daemon, which is ended after the test."""
    paths = Place(tmp_path)
    yield paths
    deadline = time.monotonic() + DEADLINE_S
    log = Path(f"{paths.socket}.log")
    while log.exists() and alive(paths.daemon):
        assert time.monotonic() < deadline, f"the daemon does not end by itself: {log.read_text()}"
        time.sleep(0.01)


@asynccontextmanager
async def agent_by(place, **more):
    """Run an agent on `acpterm stdio`, which uses the daemon at `place`.

    Yield the process of `acpterm stdio`, and the agent.
    """
    arguments = {"embedded": False, "env": place.env, **more}
    async with agent_on_stdio(place.socket.parents[1], **arguments) as (running, agent):
        yield running, agent


@asynccontextmanager
async def stood_in(place, answer=HELLO):
    """Run `acpterm stdio` with the test as the daemon, which sends `answer` to `initialize`.

    Yield the process, the agent's end of its pipes, and the daemon's end of its connection.
    """
    place.socket.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place.socket))
        sock.listen()
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        pipes = {"stdin": -1, "stdout": -1}
        async with process(place.socket.parents[1], "stdio", env=place.env, **pipes) as running:
            popen = running.process
            with trio.fail_after(DEADLINE_S):
                ours = await listener.accept()
                request = b""
                while not request.endswith(b"\n"):
                    request += await ours.receive_some()
            running.initialize = json.loads(request)
            if answer:
                await ours.send_all(answer)
            agent = trio.StapledStream(
                trio.lowlevel.FdStream(os.dup(popen.stdin.fileno())),
                trio.lowlevel.FdStream(os.dup(popen.stdout.fileno())),
            )
            popen.stdin.close()
            popen.stdout.close()
            async with agent, ours:
                yield running, agent, ours


async def until_end(stream, size=MIB) -> bytes:
    message = b""
    while data := await stream.receive_some(size):
        message += data
    return message


def memory(pid: int) -> int:
    """Return the resident set size of a process in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def unread(sock) -> int:
    """Return the bytes that a socket has received and that were not read."""
    size = bytearray(4)
    fcntl.ioctl(sock.fileno(), termios.FIONREAD, size)
    return int.from_bytes(size, sys.byteorder)


def is_half_closed(sock) -> bool:
    """Return whether the other end sends nothing more, even if there is unread data."""
    poller = select.poll()
    poller.register(sock.fileno(), select.POLLRDHUP)
    return bool(poller.poll(0))


async def write_until_full(fd: int, data: bytes, seconds: float = 0.5) -> int:
    """Write `data` repeatedly until the pipe stays full for `seconds`; return the bytes written."""
    written = 0
    os.set_blocking(fd, False)
    while True:
        with trio.move_on_after(seconds) as moved:
            await trio.lowlevel.wait_writable(fd)
        if moved.cancelled_caught:
            return written
        try:
            at = written % len(data)
            written += os.write(fd, data[at : at + 4096])
        except BlockingIOError:
            continue


# One daemon


@pytest.mark.long
async def test_daemon_starts_on_demand_and_exits_when_idle(place):
    async with agent_by(place) as (running, agent):
        assert (await agent.run("echo by the daemon"))[0] == "by the daemon\n"
        daemon = place.daemon
        assert alive(daemon)
        assert daemon != running.pid
        # The daemon stays while a connection is open, even without messages.
        await trio.sleep(1.2)
        assert (await agent.run("echo still"))[0] == "still\n"
        await agent.stream.aclose()
        assert await running.wait() == 0
    await poll(lambda: not alive(daemon))
    assert not place.socket.exists()


@pytest.mark.long
async def test_two_agents_share_a_daemon_without_seeing_each_others_terminals(place):
    async with agent_by(place) as (_, one), agent_by(place) as (_, two):
        ours = await one.create("echo one; read x")
        theirs = await two.create("echo two; read x")
        await one.until_output(ours, "one")
        for agent, terminal in ((one, theirs), (two, ours)):
            for method in ("output", "wait_for_exit", "kill", "release"):
                with pytest.raises(RpcError, match="no terminal"):
                    await agent.request(f"terminal/{method}", agent.of(terminal))
        await two.stream.aclose()
        # Ending one agent's terminals does not affect the other's.
        await one.type(ours, "x\n")
        assert (await one.wait(ours))["exitCode"] == 0


@pytest.mark.long
async def test_socket_option_selects_the_daemon(place, tmp_path):
    del place.env["ACPTERM_SOCKET"]
    arguments = {"embedded": False, "env": place.env}
    named = agent_on_stdio(tmp_path, "--socket", str(place.socket), **arguments)
    async with named as (_, agent):
        assert (await agent.run("echo there"))[0] == "there\n"
        assert alive(place.daemon)


async def test_embedded_starts_no_daemon(place, tmp_path):
    async with agent_on_stdio(tmp_path, env=place.env) as (_, agent):
        assert (await agent.run("echo here"))[0] == "here\n"
    assert not place.socket.parent.exists()


@pytest.mark.long
async def test_daemon_inherits_no_descriptors_of_the_agent(place):
    """If the daemon had the agent's pipe open, the agent would not see `acpterm stdio` end."""
    async with agent_by(place) as (running, agent):
        await agent.request("initialize", {"protocolVersion": 1})
        running.process.kill()
        with trio.fail_after(DEADLINE_S):
            await agent.closed.wait()
        assert alive(place.daemon)


# Messages that pass


async def test_unusual_bytes_pass_unchanged_in_both_directions(place):
    odd = bytes(range(256)) * 3 + b"\r\n\n\n\0" + "é\u2028".encode()[:-1] + b'{"id": 1}'
    async with stood_in(place) as (running, agent, daemon):
        await agent.send_all(odd)
        came = b""
        while len(came) < len(odd):
            came += await daemon.receive_some()
        assert came == odd
        # These are no responses. The last line is passed on once it is complete.
        await daemon.send_all(odd)
        await daemon.send_all(b"\n")
        came = b""
        while len(came) < len(odd) + 1:
            came += await agent.receive_some()
        assert came == odd + b"\n"
        await agent.send_all(b"last")
        await agent.send_stream.aclose()
        assert await until_end(daemon) == b"last"
        await daemon.send_all(b"the very last")
        await daemon.aclose()
        assert await until_end(agent) == b"the very last"
        assert await running.wait() == 0


@pytest.mark.long
async def test_only_the_relay_uses_its_stdin_and_stdout(place):
    async with stood_in(place) as (running, _, _):
        targets = [os.readlink(f"/proc/{running.pid}/fd/{number}") for number in range(3)]
        assert targets == [os.devnull, str(running.log), str(running.log)]


@pytest.mark.long
async def test_bytes_after_the_first_response_are_passed_on(place):
    async with stood_in(place, HELLO + b"and\nmore") as (_, agent, daemon):
        assert await agent.receive_some() == b"and\n"
        await daemon.send_all(b", and more\n")
        assert await agent.receive_some() == b"more, and more\n"


@pytest.mark.exhaustive
@pytest.mark.long
async def test_ten_megabyte_messages_pass_in_both_directions(place):
    async with agent_by(place) as (running, agent):
        long = {"protocolVersion": 1, "_meta": {"long": "x" * 10_000_000}}
        assert (await agent.request("initialize", long))["protocolVersion"] == 1
        command = "head -c 10000000 /dev/zero | tr '\\0' x"
        terminal = await agent.create(command, outputByteLimit=16 * MIB)
        await agent.wait(terminal)
        requests = [await agent.start("terminal/output", agent.of(terminal)) for _ in range(2)]
        for id_ in requests:
            assert (await agent.result(id_))["output"] == "x" * 10_000_000
        await agent.stream.send_stream.aclose()
        assert await running.wait() == 0


@pytest.mark.long
async def test_agents_initialize_may_be_late_repeated_or_absent(place):
    async with agent_by(place) as (_, agent):
        assert (await agent.run("echo never"))[0] == "never\n"
        assert [message["id"] for message in agent.messages] == [1, 2, 3, 4]
        for _ in range(2):
            request = {"protocolVersion": 1, "_meta": {"acpterm": {"context": {"env": {"A": "1"}}}}}
            await agent.request("initialize", request)
        assert (await agent.run("echo $A"))[0] == "1\n"


@pytest.mark.exhaustive
@pytest.mark.long
async def test_agent_that_stops_reading_blocks_the_daemon_in_bounded_memory(place):
    async with agent_by(place) as (running, agent):
        command = "head -c 3000000 /dev/zero | tr '\\0' x; read x"
        terminal = await agent.create(command)
        await agent.until_output(terminal, "x" * MIB)
        before = memory(running.pid)
        lines = [agent.prepare("terminal/output", agent.of(terminal)) for _ in range(60)]
        # Written in one call, so that this process, the reader, does not run meanwhile.
        os.write(agent.stream.send_stream.fileno(), b"".join(line for _, line in lines))
        highest = 0
        for _ in range(100):
            time.sleep(0.01)  # noqa: ASYNC251  as above
            highest = max(highest, memory(running.pid))
        assert highest - before < 4 * MIB
        assert memory(place.daemon) < 128 * MIB
        for id_, _ in lines:
            assert len((await agent.result(id_))["output"]) == MIB


@pytest.mark.long
async def test_daemon_that_stops_reading_blocks_the_agent_in_bounded_memory(place):
    data = os.urandom(1 << 16)
    async with stood_in(place) as (running, agent, daemon):
        await agent.send_all(data)
        await poll(lambda: unread(daemon.socket) == len(data))
        before = memory(running.pid)
        fd = agent.send_stream.fileno()
        written = await write_until_full(fd, data)
        assert written < 2 * MIB
        assert memory(running.pid) - before < 4 * MIB
        await agent.send_stream.aclose()
        came = await until_end(daemon)
        assert came == (data + data * (written // len(data) + 1))[: len(data) + written]


# Shutdown


@pytest.mark.long
async def test_pending_requests_are_answered_after_stdin_ends(place):
    async with agent_by(place) as (running, agent):
        terminal = await agent.create("sleep 60 & echo $!; exec sleep 60")
        child = int(await agent.until_output(terminal, "\n"))
        wait = await agent.start("terminal/wait_for_exit", agent.of(terminal))
        await agent.stream.send_stream.aclose()
        status = await agent.result(wait)
        assert status["signal"] == "SIGTERM"
        assert status["_meta"]["acpterm"]["endedBy"] == "disconnect"
        await agent.closed.wait()
        assert await running.wait() == 0
        await poll(lambda: not alive(child))
        assert "is gone" not in running.logged()


@pytest.mark.costly
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT], ids=str
)
@pytest.mark.long
async def test_signal_ends_the_terminals_and_answers_pending_requests(place, number):
    # The daemon is shared, and stays: another agent keeps it from ending because it is idle.
    async with agent_by(place) as (_, other), agent_by(place) as (running, agent):
        await other.request("initialize", {"protocolVersion": 1})
        # The program ignores the signal, so the end takes the grace of 2 s: signal twice.
        command = "trap '' TERM HUP; echo $$; while :; do sleep 0.1; done"
        terminal = await agent.create(command)
        child = int(await agent.until_output(terminal, "\n"))
        wait = await agent.start("terminal/wait_for_exit", agent.of(terminal))
        await agent.request("initialize", {"protocolVersion": 1})
        running.process.send_signal(number)
        await poll(lambda: "ending" in running.logged())
        running.process.send_signal(number)
        assert (await agent.result(wait))["signal"] == "SIGKILL"
        assert await running.wait() == 0
        assert not alive(child)
        await other.create("true")


@pytest.mark.long
async def test_signal_blocked_by_the_parent_still_ends_the_relay(place):
    def block():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    async with agent_by(place, preexec_fn=block) as (running, agent):
        await agent.request("initialize", {"protocolVersion": 1})
        running.terminate()
        assert await running.wait() == 0


async def test_signal_ends_the_relay_before_the_daemon_responds(place):
    async with stood_in(place, answer=b"") as (running, agent, _):
        running.terminate()
        assert await running.wait() == 0
        assert await until_end(agent) == b""


@pytest.mark.long
async def test_relay_exits_with_0_when_the_agent_closes_its_stdout(place):
    async with stood_in(place) as (running, agent, daemon):
        await agent.receive_stream.aclose()
        await daemon.send_all(b"this is not read\n")
        assert await running.wait() == 0
        assert "is gone" not in running.logged()


async def test_relay_exits_at_once_when_the_agent_closes_its_stdout(place):
    async with here(place, close_timeout_s=math.inf) as (agent, daemon, over):
        await agent.receive_stream.aclose()
        await daemon.send_all(b"this is not read\n")
        with trio.fail_after(DEADLINE_S):
            assert await until_end(daemon) == b""
            await over.wait()


@pytest.mark.long
async def test_killed_daemon_is_reported_as_an_error(place):
    async with agent_by(place) as (running, agent):
        wait = await agent.start("terminal/wait_for_exit", agent.of(await agent.create("sleep 60")))
        os.kill(place.daemon, signal.SIGKILL)
        # The worker outlives its keeper by a moment, in which it may respond.
        try:
            status = await agent.result(wait)
        except RpcError as error:
            assert error.message.startswith("the daemon is gone, and the terminals with it")  # noqa: PT017  or it responds
        else:
            assert status["_meta"]["acpterm"]["endedBy"] == "lost"
        await agent.closed.wait()
        assert await running.wait() == 1
        message = running.logged().splitlines()[-1]
        assert message.startswith(f"acpterm: the daemon at {place.socket} is gone")
        assert "Traceback" not in running.logged()


@pytest.mark.long
async def test_request_sent_while_the_daemon_dies_gets_an_error_response(place):
    async with stood_in(place) as (running, agent, daemon):
        # The relay finds the request and the end of the connection at the same time.
        os.kill(running.pid, signal.SIGSTOP)
        stopped = os.WSTOPPED | os.WNOWAIT | os.WNOHANG
        await poll(lambda: os.waitid(os.P_PID, running.pid, stopped))
        daemon.socket.close()
        request = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {}}
        await agent.send_all(json.dumps(request).encode() + b"\n")
        os.kill(running.pid, signal.SIGCONT)
        [line] = (await until_end(agent)).splitlines()
        response = json.loads(line)
        assert response["id"] == 7
        assert "is gone" in response["error"]["message"]
        assert await running.wait() == 1


@pytest.mark.long
async def test_daemon_that_shuts_down_answers_first(place):
    async with agent_by(place) as (running, agent):
        wait = await agent.start("terminal/wait_for_exit", agent.of(await agent.create("sleep 60")))
        await agent.request("initialize", {"protocolVersion": 1})
        os.kill(place.daemon, signal.SIGTERM)
        assert (await agent.result(wait))["signal"] == "SIGTERM"
        await agent.closed.wait()
        assert await running.wait() == 1
        assert f"the daemon at {place.socket} is gone" in running.logged()


@pytest.mark.long
async def test_daemon_that_exits_with_unread_messages_is_an_error(place):
    async with stood_in(place) as (running, agent, daemon):
        await agent.send_all(b"x" * 1000)
        await agent.send_stream.aclose()
        # It has arrived and is not read.
        assert await daemon.socket.recv(1, socket.MSG_PEEK) == b"x"
        await poll(lambda: is_half_closed(daemon.socket))
        await daemon.aclose()
        assert await running.wait() == 1
        assert f"the daemon at {place.socket} is gone" in running.logged()


async def test_relay_exits_when_the_daemon_does_not_close_in_time(place):
    async with here(place, close_timeout_s=0.3) as (agent, daemon, over):
        await agent.send_stream.aclose()
        assert await until_end(daemon) == b""
        with trio.fail_after(DEADLINE_S):
            await over.wait()
        with pytest.raises(trio.BrokenResourceError):
            await daemon.send_all(b"too late")


@asynccontextmanager
async def here(place, answer=HELLO, **timeouts):
    """Run the relay of `acpterm stdio` in this process, with the test as the daemon.

    Yield the agent's end of the pipes, the daemon's end of the connection, and an event that is set
    once the relay has ended. `answer` is the response to `initialize`.
    """
    place.socket.parent.mkdir(mode=0o700)
    reads, to_it = os.pipe()
    from_it, writes = os.pipe()
    agent = trio.StapledStream(trio.lowlevel.FdStream(to_it), trio.lowlevel.FdStream(from_it))
    over = trio.Event()

    async def run():
        settings = Settings(socket=str(place.socket))
        await stdio.relay_stdio(reads, writes, settings, None, **timeouts)
        over.set()

    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place.socket))
        sock.listen()
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        async with agent, trio.open_nursery() as nursery:
            nursery.start_soon(run)
            async with await listener.accept() as daemon:
                while not (await daemon.receive_some()).endswith(b"\n"):
                    pass
                await daemon.send_all(answer)
                yield agent, daemon, over
            nursery.cancel_scope.cancel()
    os.close(reads)
    os.close(writes)


# Unusable daemons


async def test_error_says_what_to_do_when_the_daemon_cannot_start(place, tmp_path):
    (tmp_path / "run").write_text("no directory")
    async with agent_by(place) as (running, agent):
        await agent.closed.wait()
        assert await running.wait() == 1
        message = running.logged()
        assert f"no daemon can be started for {place.socket}: " in message
        assert "--embedded" in message
        assert len(message.splitlines()) == 1


@pytest.mark.long
async def test_error_quotes_the_output_of_a_daemon_that_exits_at_start(place):
    place.socket.parent.mkdir(mode=0o700)
    place.socket.write_text("no socket")
    async with agent_by(place) as (running, agent):
        await agent.closed.wait()
        assert await running.wait() == 1
        assert "is there and is no socket" in running.logged()
        assert running.logged().count("--embedded") == 1


@pytest.mark.costly
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            b'{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no such thing"}}\n',
            "it may be of another version, as it refuses our initialize: no such thing",
        ),
        (
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"it is too long"}}\n',
            "it may be of another version, as it refuses our initialize: it is too long",
        ),
        (b"HTTP/1.1 400 Bad Request\r\n", "what listens there answers something else"),
    ],
)
async def test_error_is_reported_when_the_daemon_refuses_initialize(place, answer, expected):
    async with stood_in(place, answer) as (running, agent, daemon):
        assert await until_end(daemon) == b""
        assert await until_end(agent) == b""
        assert await running.wait() == 1
        message = running.logged()
        assert message.startswith(
            f"acpterm: the daemon at {place.socket} cannot be used: {expected}"
        )
        assert "--embedded" in message


@pytest.mark.long
async def test_error_is_reported_when_the_daemon_hangs_up(place):
    async with stood_in(place, b"") as (running, _, daemon):
        await daemon.aclose()
        assert await running.wait() == 1
        assert "cannot be used: it closes the connection" in running.logged()


async def test_error_is_reported_when_the_daemon_does_not_respond(place):
    with pytest.RaisesGroup(
        pytest.RaisesExc(DaemonError, match=r"does not answer within 0\.2 s.*--embedded"),
        flatten_subgroups=True,
    ):
        async with here(place, b"", connect_timeout_s=0.2) as (_, _, over):
            await over.wait()


# The context of terminals


@pytest.mark.long
async def test_programs_get_the_agents_context_at_a_shared_daemon(place, tmp_path):
    directory = tmp_path / "dir"
    directory.mkdir()

    def be_modest():
        os.umask(0o27)
        resource.setrlimit(resource.RLIMIT_NOFILE, (111, 222))

    other = {**place.env, "WHOSE": "the second's", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    other["PYTHONPATH"] += f":{os.getcwd()}"
    place.env["WHOSE"] = "the first's"
    async with agent_by(place) as (_, first):
        ours = {"env": other, "cwd": directory, "preexec_fn": be_modest}
        async with agent_by(place, **ours) as (_, second):
            command = "echo $WHOSE; pwd; umask; ulimit -Sn; ulimit -Hn"
            expected = f"the second's\n{directory}\n0027\n111\n222\n"
            assert (await second.run(command))[0] == expected
        assert (await first.run("echo $WHOSE; pwd"))[0] == f"the first's\n{os.getcwd()}\n"


@pytest.mark.long
async def test_non_utf_8_variables_are_dropped_and_such_a_directory_works(place, tmp_path):
    directory = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(directory)
    place.env["PYTHONPATH"] = f"{os.environ.get('PYTHONPATH', '')}:{os.getcwd()}"
    async with agent_by(place) as (_, first):
        await first.request("initialize", {"protocolVersion": 1})
        odd = {**place.env, "ODD": os.fsdecode(b"\xff"), "EVEN": "é"}
        async with agent_by(place, env=odd, cwd=directory) as (_, agent):
            output, _ = await agent.run("echo ${ODD-none} $EVEN; pwd | od -An -c | tail -2")
            assert output.startswith("none é\n")
            assert "377" in output


@pytest.mark.long
async def test_request_with_an_invalid_id_costs_only_itself(place):
    async with agent_by(place) as (running, agent):
        await agent.initialize()
        await agent.stream.send_all(b'{"jsonrpc":"2.0","id":1.5,"method":"session/list"}\n')
        assert (await agent.run("echo works"))[0] == "works\n"
        await agent.stream.send_stream.aclose()
        assert await running.wait() == 0


async def test_daemon_gets_the_context_before_any_message(place):
    place.env["WHOSE"] = "the agent's"
    async with stood_in(place) as (running, _, _):
        request = running.initialize
        assert request["method"] == "initialize"
        context = request["params"]["_meta"]["acpterm"]["context"]
        assert context["env"]["WHOSE"] == "the agent's"
        assert context["cwd"] == os.getcwd()
        assert context["umask"] == current().umask
        assert context["rlimits"]["CORE"] == list(resource.getrlimit(resource.RLIMIT_CORE))
