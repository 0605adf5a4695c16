import math
import os
import signal
import subprocess
import sys

import pytest
import trio

from acpterm.pty import linux
from acpterm.pty.reap import exit_of, reap, wait_reapable
from tests.pty.tracer import tracing
from tests.support.hosts import poll


@pytest.fixture(params=[True, False], ids=["pidfd", "thread"])
def by_pidfd(request):
    if request.param and not linux.has_pidfd():
        pytest.skip("no pidfds on this system")
    return request.param


class Running:
    """A child that a shell line makes, waited for one way or the other."""

    def __init__(self, line, by_pidfd):
        self.process = subprocess.Popen(["/bin/sh", "-c", line], stdin=subprocess.PIPE)
        self.pid = self.process.pid
        self.pidfd = os.pidfd_open(self.pid) if by_pidfd else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.pidfd is not None:
            os.close(self.pidfd)
        self.process.stdin.close()
        # Its status has been taken: it must not be waited for again.
        self.process.returncode = 0

    async def wait(self):
        with trio.fail_after(10):
            await wait_reapable(self.pid, self.pidfd)


async def test_reapable_is_not_yet_reaped(by_pidfd):
    with Running("exit 3", by_pidfd) as child:
        await child.wait()
        await child.wait()
        # The pid is still the child's: a signal to it hits nobody else.
        os.kill(child.pid, 0)
        assert linux.read_stat(child.pid).zombie
        assert reap(child.pid).code == 3
        assert linux.read_stat(child.pid) is None


@pytest.mark.parametrize("code", [0, 1, 127, 255])
async def test_an_exit_code_and_no_signal(by_pidfd, code):
    with Running(f"exit {code}", by_pidfd) as child:
        await child.wait()
        ended = reap(child.pid)
    assert (ended.code, ended.signal) == (code, None)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGINT", "SIGSEGV"])
async def test_a_signal_and_no_exit_code(by_pidfd, name):
    with Running(f"ulimit -c 0; kill -{name[3:]} $$", by_pidfd) as child:
        await child.wait()
        ended = reap(child.pid)
    assert (ended.code, ended.signal) == (None, name)


async def test_nothing_is_reapable_before_the_end(by_pidfd):
    with Running("read x", by_pidfd) as child:
        with trio.move_on_after(0.03) as scope:
            await wait_reapable(child.pid, child.pidfd)
        assert scope.cancelled_caught
        child.process.stdin.close()
        await child.wait()
        reap(child.pid)


async def test_a_stopped_child_has_not_ended(by_pidfd):
    with Running("kill -STOP $$; exit 4", by_pidfd) as child:
        await poll(lambda: _state(child.pid) == "T")
        with trio.move_on_after(0.03) as scope:
            await wait_reapable(child.pid, child.pidfd)
        assert scope.cancelled_caught
        os.kill(child.pid, signal.SIGCONT)
        await child.wait()
        assert reap(child.pid).code == 4


def _state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


async def test_waiting_for_a_child_that_somebody_else_reaped_ends(by_pidfd):
    with Running("exit 0", by_pidfd) as child:
        os.waitpid(child.pid, 0)  # noqa: ASYNC222  it ends at once
        await child.wait()
        with pytest.raises(ChildProcessError):
            reap(child.pid)


async def test_a_traced_child_holds_nobody_up_and_is_reaped_when_its_tracer_lets_go():
    if not linux.has_pidfd():
        pytest.skip("no pidfds on this system")
    with Running("read x", by_pidfd=True) as child:
        with tracing(child.pid):
            os.kill(child.pid, signal.SIGKILL)
            await child.wait()
            assert reap(child.pid) is None
        assert (await poll(lambda: reap(child.pid))).signal == "SIGKILL"


async def test_what_a_child_used_is_known(by_pidfd):
    line = f"{sys.executable} -S -c 'x = bytearray(30_000_000); sum(range(2_000_000))'"
    with Running(line, by_pidfd) as child:
        await child.wait()
        ended = reap(child.pid)
    assert 0.005 < ended.cpu < 30
    assert 30_000_000 < ended.max_rss < 300_000_000


def test_a_status_is_read_as_the_system_writes_it():
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    assert exit_of(0x0300, usage)[:2] == (3, None)
    assert exit_of(0x0080 | signal.SIGSEGV, usage)[:2] == (None, "SIGSEGV")
    assert exit_of(signal.SIGRTMIN + 3, usage)[:2] == (None, "SIGRTMIN+3")
    assert not math.isnan(exit_of(0, usage).cpu)
