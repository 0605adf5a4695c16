import errno
import os
import signal
import subprocess
import sys

import psutil
import pytest

from acpterm.pty import linux, processes
from tests.pty.scarcity import no_descriptors
from tests.support.hosts import poll


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"], env={"MARK": "here", "OTHER": "x"})
    yield process
    process.kill()
    process.wait()


@pytest.fixture(params=[True, False], ids=["pidfd", "pid"])
def by_pidfd(request, monkeypatch):
    monkeypatch.setattr(processes, "_HAS_PIDFD", request.param and linux.has_pidfd())


def test_a_process_is_known_by_pid_and_start(sleeper):
    found = processes.identity(sleeper.pid)
    assert (found.pid, found.ppid, found.sid) == (sleeper.pid, os.getpid(), os.getsid(0))
    assert not found.zombie
    assert 0 <= processes.now() - found.started < 10


async def test_a_process_that_ended_is_a_zombie_until_it_is_reaped(sleeper):
    sleeper.kill()
    await poll(lambda: processes.identity(sleeper.pid).zombie)
    sleeper.wait()
    assert processes.identity(sleeper.pid) is None


def test_a_name_with_brackets_and_spaces_does_not_confuse(tmp_path):
    path = tmp_path / "a) S 1 (b"
    path.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(path), "60"])
    try:
        assert processes.identity(process.pid).ppid == os.getpid()
    finally:
        process.kill()
        process.wait()


def test_a_snapshot_has_every_process(sleeper):
    found = {process.pid: process for process in processes.read_all() if process}
    assert found[sleeper.pid] == processes.identity(sleeper.pid)
    assert os.getpid() in found


def test_the_portable_snapshot_says_the_same(sleeper):
    found = {process.pid: process for process in processes.portable_read_all() if process}
    exact = processes.identity(sleeper.pid)
    portable = found[sleeper.pid]
    assert portable._replace(started=0) == exact._replace(started=0)
    assert portable.started == psutil.Process(sleeper.pid).create_time()


def test_an_environment_is_that_which_the_process_was_started_with(sleeper):
    assert processes.environment_of(sleeper.pid)[b"MARK"] == b"here"
    assert processes.environment_of(2**22) == {}


@pytest.mark.usefixtures("by_pidfd")
def test_exactly_the_process_is_signalled(sleeper):
    assert processes.send(processes.identity(sleeper.pid), signal.SIGTERM)
    assert sleeper.wait() == -signal.SIGTERM


@pytest.mark.usefixtures("by_pidfd")
def test_whoever_has_the_pid_now_and_started_at_another_time_is_not_signalled(sleeper):
    stranger = processes.identity(sleeper.pid)
    before = stranger._replace(started=stranger.started - 1)
    assert not processes.send(before, signal.SIGKILL)
    assert sleeper.poll() is None


@pytest.mark.usefixtures("by_pidfd")
async def test_nobody_is_signalled_who_is_gone_or_a_zombie(sleeper):
    process = processes.identity(sleeper.pid)
    sleeper.kill()
    await poll(lambda: processes.identity(sleeper.pid).zombie)
    assert not processes.send(process, signal.SIGKILL)
    sleeper.wait()
    assert not processes.send(process, signal.SIGKILL)


def test_a_process_that_is_hidden_is_as_none(monkeypatch):
    def hide(*_):
        raise PermissionError(errno.EPERM, "as with hidepid")

    monkeypatch.setattr(os, "open", hide)
    assert processes.identity(os.getpid()) is None
    monkeypatch.undo()
    assert processes.identity(os.getpid()).pid == os.getpid()


@pytest.mark.usefixtures("by_pidfd")
def test_without_a_descriptor_nobody_is_taken_for_gone(sleeper):
    process = processes.identity(sleeper.pid)
    with no_descriptors():
        with pytest.raises(OSError, match="Too many open files"):
            processes.identity(sleeper.pid)
        with pytest.raises(OSError, match="Too many open files"):
            processes.send(process, signal.SIGKILL)
    assert sleeper.poll() is None


@pytest.mark.skipif(not linux.has_pidfd(), reason="no pidfds on this system")
def test_members_are_signalled_in_their_order_and_nobody_else(monkeypatch):
    hit = []

    def note(pidfd, _):
        with open(f"/proc/self/fdinfo/{pidfd}") as info:
            hit.extend(int(line[4:]) for line in info if line.startswith("Pid:"))

    monkeypatch.setattr(signal, "pidfd_send_signal", note)
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(12)]
    try:
        pids = [process.pid for process in sleepers]
        for order in (pids, pids[::-1]):
            hit.clear()
            processes.send_to_members(order, signal.SIGTERM, lambda: pids[1:])
            assert hit == [pid for pid in order if pid != pids[0]]
    finally:
        for process in sleepers:
            process.kill()
            process.wait()


def test_pidfds_are_known_to_be_missing(monkeypatch):
    def refuse(_):
        raise OSError

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert linux.has_pidfd() is False
    monkeypatch.delattr(os, "pidfd_open")
    assert linux.has_pidfd() is False


def test_a_process_can_become_a_subreaper():
    code = "from acpterm.pty import linux; print(linux.become_subreaper())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"True\n"
