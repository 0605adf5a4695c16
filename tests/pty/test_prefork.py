"""Children that are made before their program is known."""

import errno
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import ClassVar

import psutil
import pytest
import trio

from acpterm.pty import forkclient, prefork
from acpterm.pty.forkclient import ForkServer, RefusedError
from acpterm.pty.prefork import Prefork
from acpterm.pty.program import Program
from acpterm.pty.reap import reap, wait_reapable
from acpterm.pty.spawn import ThreadSpawner
from tests.pty.test_forkclient import ANSWERS
from tests.support.hosts import alive, left_by_killed, poll

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the fork server needs Linux"),
    # What Python 3.12 and later say of the fork in a thread that is the other way.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


class Tree:
    """A tree of one process, and what it was told, in order."""

    cgroup = None
    join = None
    environment: ClassVar = {}
    rlimits = ()

    def __init__(self, name):
        self.name = name
        self.told = []
        self.pid = None

    def started(self, pid):
        self.pid = pid
        self.told.append("started")

    def begins(self):
        self.told.append("begins")

    def reaped(self):
        self.told.append("reaped")

    async def kill(self):
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)

    async def close(self):
        self.told.append("closed")


def make(*argv, **more):
    return lambda _: Program(
        list(argv), **{"env": dict(os.environ), "cwd": "/", "umask": 0o22, **more}
    )


def left():
    """What this process has that blanks might leave behind."""
    children = [child.pid for child in psutil.Process().children()]
    return sorted(os.listdir("/proc/self/fd")), children


async def end(child):
    """Wait for a child's end: what it wrote, and how it ended."""
    await wait_reapable(child.pid, child.pidfd)
    buffer = memoryview(bytearray(65536))
    size, _ = child.master.read(buffer)
    ended = reap(child.pid)
    close(child)
    return bytes(buffer[:size]).decode(), ended


def close(child):
    child.master.close()
    child.close_pidfd()


@asynccontextmanager
async def running(fallback=None):
    async with ForkServer() as server, trio.open_nursery() as nursery:
        spawner = Prefork(server, Tree, fallback)
        nursery.start_soon(spawner.run)
        yield spawner
        nursery.cancel_scope.cancel()


async def ready(spawner):
    """Wait until a blank waits: its pid."""
    return (await poll(lambda: spawner.waiting() or None))[0]


async def test_none_is_made_before_the_first_and_one_is_ready_after_each():
    async with running() as spawner:
        await poll(lambda: spawner._server.pid)
        assert spawner.waiting() == []
        assert (await end(await spawner.spawn(make("sh", "-c", "exit 3"), 80, 24)))[1].code == 3
        for number in range(5):
            pid = await ready(spawner)
            child = await spawner.spawn(make("sh", "-c", f"exit {number}"), 80, 24)
            assert child.pid == pid
            assert child.tree.told == ["started", "begins"]
            assert (await end(child))[1].code == number


async def test_one_that_was_made_ahead_becomes_its_program_on_a_window_of_the_size_asked_for():
    async with running() as spawner:
        await end(await spawner.spawn(make("true"), 80, 24))
        await ready(spawner)
        env = {"PATH": os.environ["PATH"], "A": "\N{SNOWMAN}"}
        line = "stty size; pwd; umask; printenv A; ulimit -c"
        told = make("sh", "-c", line, env=env, cwd="/usr", umask=0o27, rlimits=((4, 0, 0),))
        child = await spawner.spawn(told, 100, 30)
        output, ended = await end(child)
        words = output.split()
        assert words == ["30", "100", "/usr", "0027", "\N{SNOWMAN}", "0"]
        assert ended.code == 0


async def test_a_name_is_never_given_twice_and_is_the_trees():
    async with running() as spawner:
        names = set()
        for _ in range(5):
            told = []

            def program(name, told=told):
                told.append(name)
                return make("true")(name)

            child = await spawner.spawn(program, 80, 24)
            assert told == [child.name] == [child.tree.name]
            names.add(child.name)
            await end(child)
        assert len(names) == 5


async def test_many_at_once_each_get_their_own():
    found = {}

    async def one(spawner, number):
        child = await spawner.spawn(make("sh", "-c", f"exit {number}"), 80, 24)
        found[number] = (await end(child))[1].code

    async with running() as spawner, trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(one, spawner, number)
    assert found == {number: number for number in range(20)}


async def test_one_that_nobody_wants_for_a_while_is_gone_without_a_trace(monkeypatch):
    monkeypatch.setattr(prefork, "KEPT", 0.05)
    async with running() as spawner:
        await poll(lambda: spawner._server.pid)
        before = left()
        await end(await spawner.spawn(make("true"), 80, 24))
        pid = await ready(spawner)
        await poll(lambda: not spawner.waiting() and not psutil.pid_exists(pid))
        await poll(lambda: left() == before)
        # And the next one is made when it is asked for.
        assert (await end(await spawner.spawn(make("sh", "-c", "exit 3"), 80, 24)))[1].code == 3


async def test_the_end_discards_it():
    before = left()
    async with running() as spawner:
        await end(await spawner.spawn(make("true"), 80, 24))
        pid = await ready(spawner)
        tree = spawner._kept.child.tree
    assert not psutil.pid_exists(pid)
    assert tree.told == ["started", "reaped", "closed"]
    assert left() == before


async def test_one_that_ended_meanwhile_is_replaced():
    async with running() as spawner:
        await end(await spawner.spawn(make("true"), 80, 24))
        pid = await ready(spawner)
        os.kill(pid, signal.SIGKILL)
        await poll(lambda: not alive(pid))
        child = await spawner.spawn(make("sh", "-c", "exit 3"), 80, 24)
        assert child.pid != pid
        assert (await end(child))[1].code == 3
        assert not psutil.pid_exists(pid)


LONG = ["x" * 100_000 for _ in range(8)]


async def test_a_program_longer_than_a_pipe_holds_is_told_in_pieces():
    async with running() as spawner:
        child = await spawner.spawn(make("sh", "-c", "echo ${#8} $#", "sh", *LONG), 80, 24)
        assert (await end(child))[0] == "100000 8\r\n"


async def test_a_spawn_that_is_cancelled_while_it_tells_leaves_nothing():
    async with running() as spawner:
        await poll(lambda: spawner._server.pid)
        before = left()
        await end(await spawner.spawn(make("true"), 80, 24))
        pid = await ready(spawner)
        os.kill(pid, signal.SIGSTOP)
        with trio.move_on_after(0.05) as scope:
            await spawner.spawn(make("echo", *LONG), 80, 24)
        assert scope.cancelled_caught
        assert not psutil.pid_exists(pid)
        await ready(spawner)
        await spawner._drop()
        assert left() == before


async def test_one_that_does_not_listen_is_an_error_and_leaves_nothing(monkeypatch):
    monkeypatch.setattr(prefork, "_TOLD", 0.05)
    async with running() as spawner:
        await end(await spawner.spawn(make("true"), 80, 24))
        pid = await ready(spawner)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(RefusedError, match="did not hear") as caught:
            await spawner.spawn(make("echo", *LONG), 80, 24)
        assert caught.value.errno == errno.EIO
        assert not psutil.pid_exists(pid)
        assert (await end(await spawner.spawn(make("true"), 80, 24)))[1].code == 0


async def test_a_program_that_cannot_be_described_leaves_nothing():
    def wrong(_):
        raise ValueError("no program")

    async with running() as spawner:
        await end(await spawner.spawn(make("true"), 80, 24))
        await ready(spawner)
        pid = spawner.waiting()[0]
        with pytest.raises(ValueError, match="no program"):
            await spawner.spawn(wrong, 80, 24)
        assert not psutil.pid_exists(pid)


async def test_without_a_fork_server_children_come_from_threads(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    before = left()
    async with running(ThreadSpawner(Tree)) as spawner:
        for _ in range(2):
            child = await spawner.spawn(make("sh", "-c", "stty size"), 100, 30)
            assert child.tree.told == ["begins", "started"]
            output, ended = await end(child)
            assert (output, ended.code) == ("30 100\r\n", 0)
        assert spawner._server.pid is None
    # Threads are kept for a while, with nothing of ours.
    assert left() == before


async def test_a_refusal_is_told_and_does_not_change_how_children_are_made(monkeypatch):
    monkeypatch.setattr(forkclient, "_BOOT", ANSWERS.format(errno=errno.EAGAIN))
    before = left()
    async with running(ThreadSpawner(Tree)) as spawner:
        for _ in range(3):
            with pytest.raises(RefusedError):
                await spawner.spawn(make("true"), 80, 24)
        assert spawner.waiting() == []
    assert left() == before


async def test_a_fork_server_that_ends_takes_none_with_it():
    async with running() as spawner:
        await end(await spawner.spawn(make("true"), 80, 24))
        pid = await ready(spawner)
        server = spawner._server.pid
        os.kill(server, signal.SIGKILL)
        await poll(lambda: not alive(server))
        child = await spawner.spawn(make("sh", "-c", "exit 3"), 80, 24)
        assert child.pid == pid
        assert (await end(child))[1].code == 3


async def test_none_is_left_when_the_daemon_is_killed():
    code = (
        "import os, signal, trio\n"
        "from tests.pty.test_prefork import end, make, ready, running\n"
        "async def main():\n"
        "    async with running() as spawner:\n"
        "        await end(await spawner.spawn(make('true'), 80, 24))\n"
        "        print(await ready(spawner), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "trio.run(main)\n"
    )
    pid = await left_by_killed(code)
    await poll(lambda: not alive(pid))
