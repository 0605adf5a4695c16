import errno
import os
import resource
import signal
import sys

import psutil
import pytest
import trio

from acpterm.pty import forkclient
from acpterm.pty.forkclient import ForkServer, RefusedError, UnavailableError
from acpterm.pty.master import Master, open_pair
from acpterm.pty.program import Program, pack
from acpterm.pty.reap import reap, wait_reapable
from tests.support.hosts import alive, left_by_killed, poll

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the fork server needs Linux"),
    # What Python 3.12 and later say of the fork in a thread that is the other way.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


def program(*argv, **more):
    return Program(list(argv), **{"env": dict(os.environ), "cwd": "/", "umask": 0o22, **more})


class Run:
    """A program made by `server`, on a terminal of its own."""

    def __init__(self, pid, pidfd, master):
        self.pid, self.pidfd, self.master = pid, pidfd, Master(pid, master)

    async def end(self):
        """Wait for its end: what it wrote, and how it ended."""
        await wait_reapable(self.pid, self.pidfd)
        buffer = memoryview(bytearray(65536))
        size, _ = self.master.read(buffer)
        ended = reap(self.pid)
        self.master.close()
        os.close(self.pidfd)
        return bytes(buffer[:size]).decode(), ended


async def blank(server):
    """Have a blank made: it, and the pipe to tell it its program by."""
    master, slave = open_pair(80, 24)
    source, pipe = os.pipe()
    try:
        pid, pidfd = await server.fork(slave, source, None)
    except BaseException:
        os.close(master)
        os.close(pipe)
        raise
    finally:
        os.close(slave)
        os.close(source)
    return Run(pid, pidfd, master), pipe


async def start(server, *argv, **more):
    running, pipe = await blank(server)
    async with await trio.open_file(pipe, "wb") as file:
        await file.write(pack(program(*argv, **more)))
    return running


async def run(server, *argv, **more):
    return await (await start(server, *argv, **more)).end()


async def test_a_child_is_ours_on_its_terminal_and_reaped_here():
    async with ForkServer() as server:
        output, ended = await run(server, "sh", "-c", "ps -o ppid= -p $$; tty; exit 3")
    parent, terminal = output.split()
    assert int(parent) == os.getpid()
    assert terminal.startswith("/dev/")
    assert (ended.code, ended.signal) == (3, None)


async def test_one_server_makes_all_children_however_long_it_waits_in_between():
    async with ForkServer() as server:
        await run(server, "true")
        pid = server.pid
        for _ in range(20):
            await trio.sleep(0.005)
            assert (await run(server, "true"))[1].code == 0
        assert server.pid == pid
        assert alive(pid)


async def test_the_server_can_be_started_ahead_and_ends_with_its_block():
    async with ForkServer() as server:
        assert server.pid is None
        await server.start()
        pid = server.pid
        assert alive(pid)
        await server.start()
        assert server.pid == pid
    assert server.pid is None
    assert not psutil.pid_exists(pid)


async def test_a_server_that_ended_is_started_again():
    async with ForkServer() as server:
        await run(server, "true")
        first = server.pid
        os.kill(first, signal.SIGKILL)
        await poll(lambda: not alive(first))
        assert (await run(server, "true"))[1].code == 0
        assert server.pid != first


async def test_children_live_on_when_their_server_ends():
    async with ForkServer() as server:
        running = await start(server, "sh", "-c", "echo up; read x; echo got $x")
        os.kill(server.pid, signal.SIGKILL)
        assert running.master.write(b"this\n") == 5
        output, ended = await running.end()
    assert "got this" in output
    assert ended.code == 0


async def test_many_ask_at_once_and_each_gets_its_own():
    found = {}

    async def one(number):
        found[number] = (await run(server, "sh", "-c", f"exit {number}"))[1].code

    async with ForkServer() as server, trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(one, number)
    assert found == {number: number for number in range(20)}


async def test_a_request_of_many_kilobytes_arrives():
    # Longer than what a socket takes at once, and than what one receive gives.
    words = ["x" * 100_000 for _ in range(8)]
    async with ForkServer() as server:
        output, _ = await run(server, "sh", "-c", "echo ${#8} $#", "sh", *words)
    assert output == "100000 8\r\n"


async def test_who_is_cancelled_while_waiting_for_a_turn_has_made_no_child():
    async def hold(*, task_status):
        async with server._lock:
            task_status.started()
            await released.wait()

    released = trio.Event()
    async with ForkServer() as server, trio.open_nursery() as nursery:
        await server.start()
        before = psutil.Process().children()
        await nursery.start(hold)
        with trio.move_on_after(0.01) as scope:
            await start(server, "sleep", "60")
        assert scope.cancelled_caught
        released.set()
        assert (await run(server, "true"))[1].code == 0
        assert psutil.Process().children() == before


async def test_a_start_that_is_cancelled_leaves_nothing():
    before = os.listdir("/proc/self/fd")
    async with ForkServer() as server:
        with trio.CancelScope() as scope:
            await server._lock.acquire()
            scope.cancel()
            with pytest.raises(trio.Cancelled):
                await server._ensure()
            server._lock.release()
        assert os.listdir("/proc/self/fd") == before
        assert (await run(server, "true"))[1].code == 0


async def test_a_server_that_cannot_be_started_is_unavailable(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    async with ForkServer() as server:
        with pytest.raises(UnavailableError, match="cannot be started"):
            await server.start()
        with pytest.raises(UnavailableError, match="cannot be started"):
            await start(server, "true")


async def test_a_server_that_ends_at_once_is_unavailable(monkeypatch):
    monkeypatch.setattr(forkclient, "_BOOT", "pass")
    async with ForkServer() as server:
        with pytest.raises(UnavailableError, match="went away"):
            await start(server, "true")
        assert server.pid is None


async def test_a_server_that_is_lost_in_the_middle_costs_one_child_and_no_second_try():
    async with ForkServer() as server:
        assert (await run(server, "true"))[1].code == 0
        os.kill(server.pid, signal.SIGSTOP)
        async with trio.open_nursery() as nursery:

            async def refused():
                with pytest.raises(RefusedError, match="try again"):
                    await start(server, "true")

            nursery.start_soon(refused)
            await trio.testing.wait_all_tasks_blocked(0.05)
            os.kill(server.pid, signal.SIGKILL)
        assert (await run(server, "true"))[1].code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_a_child_is_in_the_foreground_as_soon_as_it_is_given(number):
    async with ForkServer() as server:
        for _ in range(20):
            running = await start(server, "sleep", "60")
            assert running.master.signal_foreground(number)
            with trio.fail_after(5):
                _, ended = await running.end()
            assert ended.signal == signal.Signals(number).name


async def test_a_server_that_does_not_answer_is_killed_and_unavailable(monkeypatch):
    monkeypatch.setattr(forkclient, "_BOOT", "import time; time.sleep(60)")
    monkeypatch.setattr(forkclient, "DEADLINE", 0.1)
    async with ForkServer() as server:
        await server.start()
        pid = server.pid
        with pytest.raises(UnavailableError, match="did not answer"):
            await start(server, "true")
        assert not psutil.pid_exists(pid)


ANSWERS = """
import sys; sys.path.insert(0, sys.argv[1])
import socket
from acpterm.pty import forkserver
def refuse(cgroup): raise OSError({errno}, "")
forkserver._clone = refuse
forkserver.main(int(sys.argv[2]))
"""


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG])
async def test_a_kernel_without_clone3_is_unavailable(monkeypatch, number):
    monkeypatch.setattr(forkclient, "_BOOT", ANSWERS.format(errno=number))
    async with ForkServer() as server:
        with pytest.raises(UnavailableError, match="clone3 is refused"):
            await start(server, "true")


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
async def test_a_kernel_without_room_refuses_once_and_the_server_stays(monkeypatch, number):
    monkeypatch.setattr(forkclient, "_BOOT", ANSWERS.format(errno=number))
    async with ForkServer() as server:
        for _ in range(2):
            with pytest.raises(RefusedError, match=os.strerror(number)) as caught:
                await start(server, "true")
            assert caught.value.errno == number
        assert alive(server.pid)


async def test_without_room_for_a_descriptor_the_child_is_made_and_given_all_the_same():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with ForkServer() as server:
        await server.start()
        master, slave = open_pair(80, 24)
        source, pipe = os.pipe()
        free = os.dup(slave)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            pid, pidfd = await server.fork(slave, source, None)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert pidfd is None
        os.write(pipe, pack(program("sh", "-c", "exit 3")))
        await wait_reapable(pid, None)
        assert reap(pid).code == 3
        for fd in (master, slave, source, pipe):
            os.close(fd)


async def test_the_server_ends_when_the_daemon_is_killed():
    code = (
        "import os, signal, sys, trio\n"
        "from acpterm.pty.forkclient import ForkServer\n"
        "async def main():\n"
        "    async with ForkServer() as server:\n"
        "        await server.start()\n"
        "        print(server.pid, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "trio.run(main)\n"
    )
    pid = await left_by_killed(code)
    await poll(lambda: not alive(pid))


def test_a_request_holds_all_that_a_child_needs():
    import marshal

    whole = program("a", "b\udcff", env={"A": "\udcff"}, rlimits=((7, 1, 2),), otherwise=("c",))
    body = pack(whole)
    assert int.from_bytes(body[:4], "little") == len(body) - 4
    read = Program(*marshal.loads(body[4:]))
    assert list(read.argv) == list(whole.argv)
    assert read.env == whole.env
    assert [tuple(limit) for limit in read.rlimits] == list(whole.rlimits)
    assert list(read.otherwise) == list(whole.otherwise)
