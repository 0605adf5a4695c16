"""`acpterm stdio`, embedded or with a daemon, on any kind of stdin and stdout."""

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
import tty
from contextlib import contextmanager

import pytest
import trio

from acpterm.runtime.stdio import StdioStream
from tests.support.agent import agent_on
from tests.support.daemon import listens
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_on_stdio
from tests.support.polling import poll
from tests.support.processes import alive, environment
from tests.support.signals import blocked_or_ignored
from tests.support.starting import ACPTERM, start


def line(method, id_=1, **params) -> bytes:
    message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


HELLO = line("initialize", protocolVersion=1)


@pytest.fixture(scope="module")
def daemon_socket(tmp_path_factory):
    """Run a daemon for all tests of this module; yield its socket."""
    path = str(tmp_path_factory.mktemp("daemon") / "agent.sock")
    command = [*ACPTERM, "serve", "--socket", path, "--log-level", "error"]
    with subprocess.Popen(command, env=environment()) as running:
        while not listens(path):
            assert running.poll() is None
            time.sleep(0.01)
        yield path
        running.terminate()
        assert running.wait(DEADLINE_S) == 0


@pytest.fixture(params=["embedded", "daemon"])
def whose(request):
    """Return the arguments for an embedded host, or for the daemon."""
    if request.param == "embedded":
        return ("--embedded",)
    return "--socket", request.getfixturevalue("daemon_socket")


@contextmanager
def hosted(tmp_path, redirections="", *arguments, **more):
    """Run `acpterm stdio` with a shell's redirections; kill it at the end if it still runs."""
    words = ["stdio", *arguments]
    command = ["/bin/sh", "-c", f'exec "$@" {redirections}', "sh", *ACPTERM, *words]
    log = tmp_path / "stderr"
    with log.open("ab") as stderr:
        how = {"env": environment(), "stderr": stderr, **more}
        running = subprocess.Popen(command, **how) if redirections else start(words, **how)
    try:
        yield running
    finally:
        running.kill()
        running.wait()
        for pipe in (running.stdin, running.stdout):
            if pipe is not None:
                pipe.close()


def stderr_of(tmp_path) -> str:
    return (tmp_path / "stderr").read_text()


def is_non_blocking(fd) -> bool:
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK)


# Two pipes, the usual case


async def test_host_serves_until_the_end_of_its_input(tmp_path):
    async with agent_on_stdio(tmp_path) as (process, agent):
        assert (await agent.request("initialize", {"protocolVersion": 1}))["protocolVersion"] == 1
        assert (await agent.run("echo over pipes"))[0] == "over pipes\n"
        terminal = await agent.create("sleep 60 & echo $!; exec sleep 60")
        child = int(await agent.until_output(terminal, "\n"))
        wait = await agent.start("terminal/wait_for_exit", agent.of(terminal))
        await agent.stream.send_stream.aclose()
        # The pending request is answered: the terminal is ended, as its agent has disconnected.
        status = await agent.result(wait)
        assert status["signal"] == "SIGTERM"
        assert status["_meta"]["acpterm"]["endedBy"] == "disconnect"
        assert await process.wait() == 0
        await agent.closed.wait()
        assert not alive(child)


@pytest.mark.long
async def test_stdout_has_only_messages(tmp_path, whose):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with hosted(tmp_path, "", *whose, "--log-level", "debug", **pipes) as running:
        out, _ = await trio.to_thread.run_sync(running.communicate, b"nonsense\n" + HELLO)
    assert [json.loads(one)["jsonrpc"] for one in out.splitlines()] == ["2.0", "2.0"]
    assert out.endswith(b"\n")
    assert "connect" in stderr_of(tmp_path)


@pytest.mark.long
async def test_programs_inherit_no_descriptor_of_the_host(tmp_path):
    async with agent_on_stdio(tmp_path) as (_, agent):
        output, _ = await agent.run("readlink /proc/$$/fd/*")
        assert {name.partition("/pts/")[0] for name in output.split()} == {"/dev"}


@pytest.mark.long
async def test_program_that_reads_stdin_does_not_read_the_hosts(tmp_path):
    async with agent_on_stdio(tmp_path) as (_, agent):
        terminal = await agent.create("cat")
        assert (await agent.run("echo still in order"))[0] == "still in order\n"
        await agent.type(terminal, "typed\n")
        await agent.until_output(terminal, "typed\ntyped\n")


@pytest.mark.long
async def test_sigpipe_is_default_in_programs_and_ignored_in_the_host(tmp_path):
    async with agent_on_stdio(tmp_path) as (_, agent):
        output, _ = await agent.run("grep SigIgn /proc/self/status; yes | head -1")
        assert not blocked_or_ignored(output)
        assert output.endswith("\ny\n")


# One file description for both, shared with the parent


@contextmanager
def socket_pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours.fileno(), theirs.fileno()


@contextmanager
def pty_pair():
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.costly
@pytest.mark.parametrize("pair", [socket_pair, pty_pair])
@pytest.mark.parametrize("how", ["end", "SIGTERM", "SIGKILL"])
@pytest.mark.long
async def test_shared_description_is_never_left_non_blocking(tmp_path, whose, pair, how):
    with pair() as (ours, theirs):
        with hosted(tmp_path, "", *whose, stdin=theirs, stdout=theirs) as running:
            stream = trio.lowlevel.FdStream(os.dup(ours))
            async with agent_on(stream) as agent:
                terminal = await agent.create("echo $$; exec sleep 60")
                child = int(await agent.until_output(terminal, "\n"))
                wait = await agent.start("terminal/wait_for_exit", agent.of(terminal))
                for number in range(20):
                    assert not is_non_blocking(theirs)
                    assert (await agent.run(f"echo {number}"))[0] == f"{number}\n"
                # More than the buffers between the two hold, so that one side has to wait.
                big = await agent.run("head -c 500000 /dev/zero | tr '\\0' x")
                assert big[0] == "x" * 500_000
                assert not is_non_blocking(theirs)
                if how == "end" and pair is socket_pair:
                    with socket.socket(fileno=os.dup(ours)) as end:
                        end.shutdown(socket.SHUT_WR)
                    assert (await agent.result(wait))["signal"] == "SIGTERM"
                elif how == "end":
                    running.terminate()
                elif how == "SIGTERM":
                    running.terminate()
                    assert (await agent.result(wait))["signal"] == "SIGTERM"
                else:
                    running.kill()
                assert await poll(running.poll) == (-9 if how == "SIGKILL" else 0)
            await poll(lambda: not alive(child))
        assert not is_non_blocking(theirs)


@pytest.mark.costly
async def test_non_blocking_description_works(tmp_path, whose):
    with socket_pair() as (ours, theirs):
        os.set_blocking(theirs, False)
        with hosted(tmp_path, "", *whose, stdin=theirs, stdout=theirs):
            async with agent_on(trio.lowlevel.FdStream(os.dup(ours))) as agent:
                output, _ = await agent.run("head -c 3000000 /dev/zero | tr '\\0' x")
                assert len(output) == 1 << 20
        assert is_non_blocking(theirs), "it is not ours to change"


# Closed from the start


@pytest.mark.long
async def test_closed_stdin_counts_as_ended(tmp_path, whose):
    with hosted(tmp_path, "<&-", *whose, stdout=subprocess.PIPE) as running:
        assert await trio.to_thread.run_sync(running.stdout.read) == b""
        assert await poll(running.poll) == 0
    assert "Traceback" not in stderr_of(tmp_path)


@pytest.mark.parametrize("redirections", [">&-", "<&- >&-"])
@pytest.mark.long
async def test_closed_stdout_is_an_error(tmp_path, whose, redirections):
    with hosted(tmp_path, redirections, *whose, stdin=subprocess.PIPE) as running:
        assert await poll(running.poll) == 1
    assert stderr_of(tmp_path) == "acpterm: stdout is closed: there is nowhere to answer to\n"


@pytest.mark.long
async def test_closed_stderr_changes_nothing(tmp_path, whose):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with hosted(tmp_path, "2>&-", *whose, **pipes) as running:
        requests = b"nonsense\n" + HELLO + line("terminal/create", 2, sessionId="s", command="true")
        running.stdin.write(requests)
        running.stdin.flush()
        answers = [
            json.loads(await trio.to_thread.run_sync(running.stdout.readline)) for _ in range(3)
        ]
        assert [answer["id"] for answer in answers] == [None, 1, 2]
        running.stdin.close()
        assert await trio.to_thread.run_sync(running.stdout.read) == b""
        assert await poll(running.poll) == 0


@pytest.mark.long
async def test_three_closed_standard_descriptors_are_an_error(tmp_path, whose):
    with hosted(tmp_path, "<&- >&- 2>&-", *whose) as running:
        assert await poll(running.poll) == 1


# Closed later


@pytest.mark.costly
async def test_broken_stdout_ends_the_host_and_its_terminals(tmp_path, whose):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with hosted(tmp_path, "", *whose, **pipes) as running:
        pids = tmp_path / "pid"
        command = f"trap '' HUP; echo $$ >{pids}; sleep 60"
        running.stdin.write(line("terminal/create", sessionId="s", command=command))
        running.stdin.flush()
        answer = json.loads(await trio.to_thread.run_sync(running.stdout.readline))
        terminal = answer["result"]["terminalId"]
        await poll(lambda: pids.exists() and pids.read_text().endswith("\n"))
        running.stdin.write(line("terminal/wait_for_exit", 2, sessionId="s", terminalId=terminal))
        running.stdin.flush()
        running.stdout.close()
        # It is noticed with the next write.
        running.stdin.write(HELLO)
        running.stdin.flush()
        assert await poll(running.poll) == 0
        await poll(lambda: not alive(int(pids.read_text())))
    assert "Traceback" not in stderr_of(tmp_path)


@pytest.mark.long
async def test_agent_that_dies_within_a_line_ends_the_host(tmp_path, whose):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with hosted(tmp_path, "", *whose, **pipes) as running:
        running.stdin.write(HELLO + HELLO[:25])
        running.stdin.close()
        out = await trio.to_thread.run_sync(running.stdout.read)
        assert [json.loads(one)["id"] for one in out.splitlines()] == [1]
        assert await poll(running.poll) == 0


@pytest.mark.costly
async def test_pending_responses_are_sent_after_the_end_of_the_input(tmp_path, whose):
    """A long response arrives completely, even if it is read only after the input has ended."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with hosted(tmp_path, "", *whose, **pipes) as running:
        long = "x" * 70_000
        requests = b"".join(line(f"_{long}", number) for number in range(20))
        running.stdin.write(requests)
        running.stdin.close()
        out = await trio.to_thread.run_sync(running.stdout.read)
        assert [json.loads(one)["id"] for one in out.splitlines()] == list(range(20))
        assert await poll(running.poll) == 0


# Other kinds of files


@pytest.mark.long
async def test_file_of_requests_is_answered_into_a_file(tmp_path, whose):
    requests, responses = tmp_path / "in", tmp_path / "out"
    requests.write_bytes(
        HELLO
        + line("terminal/create", 2, sessionId="s", command="sleep 60")
        + b"nonsense\n"
        + line("unknown", 3)
    )
    with hosted(tmp_path, f"<{requests} >{responses}", *whose) as running:
        assert await poll(running.poll) == 0
    answers = [json.loads(one) for one in responses.read_text().splitlines()]
    assert sorted(str(answer["id"]) for answer in answers) == ["1", "2", "3", "None"]
    assert "Traceback" not in stderr_of(tmp_path)


@pytest.mark.costly
async def test_empty_input_ends_the_host(tmp_path, whose):
    null = subprocess.DEVNULL
    with hosted(tmp_path, "", *whose, stdin=null, stdout=null) as running:
        assert await poll(running.poll) == 0
    assert "Traceback" not in stderr_of(tmp_path)


@pytest.mark.long
async def test_full_stdout_ends_the_host_without_a_crash(tmp_path, whose):
    with hosted(tmp_path, ">/dev/full", *whose, stdin=subprocess.PIPE) as running:
        running.stdin.write(HELLO)
        running.stdin.flush()
        assert await poll(running.poll) == 0
    assert "Traceback" not in stderr_of(tmp_path)


@pytest.mark.exhaustive
@pytest.mark.long
async def test_host_ends_when_the_agent_reads_nothing(tmp_path, whose):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with hosted(tmp_path, "", *whose, **pipes) as running:
        running.stdin.write(HELLO)
        running.stdin.flush()
        await trio.to_thread.run_sync(running.stdout.readline)
        long = "x" * 1000
        fd = running.stdin.fileno()
        os.set_blocking(fd, False)

        def is_full() -> bool:
            try:
                os.write(fd, line(f"_{long}"))
            except BlockingIOError:
                return True
            return False

        def write_until_full() -> None:
            while not is_full():
                pass

        with trio.fail_after(DEADLINE_S):
            while True:
                write_until_full()
                with trio.move_on_after(0.3) as moved:
                    await poll(lambda: not is_full())
                if moved.cancelled_caught:
                    break
        running.terminate()
        assert await poll(running.poll) == 0


@pytest.mark.long
async def test_abandoned_write_reaches_no_other_file():
    ours, theirs = os.pipe()
    # A write in many parts may be interrupted in the middle.
    os.set_blocking(theirs, False)
    before = len(os.listdir("/proc/self/fd"))
    stream = StdioStream(os.open(os.devnull, os.O_RDONLY), os.dup(theirs))
    writes = stream._writes
    with trio.move_on_after(0.05):
        await stream.send_all(b"x" * 1_000_000)
    await stream.aclose()
    # Another file gets the descriptor's number.
    again, other = os.pipe()
    os.dup2(other, writes)
    try:
        # The rest is still written to the original file.
        got = 0
        with trio.fail_after(DEADLINE_S):
            while got < 1_000_000:
                await trio.lowlevel.wait_readable(ours)
                got += len(os.read(ours, 65536))
        os.set_blocking(again, False)
        with pytest.raises(BlockingIOError):
            os.read(again, 1)
    finally:
        for fd in {again, other, writes}:
            os.close(fd)
    await poll(lambda: len(os.listdir("/proc/self/fd")) == before)
    # A write that never started leaves none either.
    stream = StdioStream(os.open(os.devnull, os.O_RDONLY), os.dup(theirs))
    with trio.CancelScope() as scope:
        scope.cancel()
        await stream.send_all(b"x")
    await stream.aclose()
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(ours)
    os.close(theirs)


@pytest.mark.long
def test_wrong_arguments_print_the_usage():
    done = subprocess.run(
        [sys.executable, "-m", "acpterm", "stdio", "--unknown"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--unknown" in done.stderr
