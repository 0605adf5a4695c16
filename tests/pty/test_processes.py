"""Identities, environments and signals of processes."""

import errno
import os
import signal
import subprocess
import sys

import psutil
import pytest

from acpterm.pty import linux, processes
from tests.pty.scarcity import no_descriptors
from tests.support.polling import poll, poll_blocking


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"], env={"MARK": "here", "OTHER": "x"})
    yield process
    process.kill()
    process.wait()


@pytest.fixture(params=[True, False], ids=["pidfd", "pid"])
def by_pidfd(request, monkeypatch):
    monkeypatch.setattr(processes, "_HAS_PIDFD", request.param and linux.has_pidfd())


def test_identity_has_pid_and_start_time(sleeper):
    found = processes.identity(sleeper.pid)
    assert (found.pid, found.ppid, found.sid) == (sleeper.pid, os.getpid(), os.getsid(0))
    assert not found.zombie
    assert 0 <= processes.now() - found.started < 10


async def test_ended_process_is_a_zombie_until_it_is_reaped(sleeper):
    sleeper.kill()
    await poll(lambda: processes.identity(sleeper.pid).zombie)
    sleeper.wait()
    assert processes.identity(sleeper.pid) is None


def test_identity_is_parsed_when_the_name_has_brackets_and_spaces(tmp_path):
    path = tmp_path / "a) S 1 (b"
    path.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(path), "60"])
    try:
        assert processes.identity(process.pid).ppid == os.getpid()
    finally:
        process.kill()
        process.wait()


def test_read_all_contains_every_process(sleeper):
    found = {process.pid: process for process in processes.read_all() if process}
    assert found[sleeper.pid] == processes.identity(sleeper.pid)
    assert os.getpid() in found


def test_portable_read_all_agrees_with_proc(sleeper):
    found = {process.pid: process for process in processes.portable_read_all() if process}
    exact = processes.identity(sleeper.pid)
    portable = found[sleeper.pid]
    assert portable._replace(started=0) == exact._replace(started=0)
    assert portable.started == psutil.Process(sleeper.pid).create_time()


def test_environment_of_returns_the_environment_at_the_start_of_the_process(sleeper):
    # Right after an exec the environment is not there yet.
    poll_blocking(lambda: processes.environment_of(sleeper.pid).get(b"MARK") == b"here")
    assert processes.environment_of(2**22) == {}


@pytest.mark.usefixtures("by_pidfd")
def test_send_signals_the_process(sleeper):
    assert processes.send(processes.identity(sleeper.pid), signal.SIGTERM)
    assert sleeper.wait() == -signal.SIGTERM


@pytest.mark.usefixtures("by_pidfd")
def test_send_does_not_signal_a_process_with_another_start_time(sleeper):
    stranger = processes.identity(sleeper.pid)
    before = stranger._replace(started=stranger.started - 1)
    assert not processes.send(before, signal.SIGKILL)
    assert sleeper.poll() is None


@pytest.mark.usefixtures("by_pidfd")
async def test_send_does_not_signal_gone_processes_and_zombies(sleeper):
    process = processes.identity(sleeper.pid)
    sleeper.kill()
    await poll(lambda: processes.identity(sleeper.pid).zombie)
    assert not processes.send(process, signal.SIGKILL)
    sleeper.wait()
    assert not processes.send(process, signal.SIGKILL)


def test_identity_is_none_when_the_process_is_hidden(monkeypatch):
    def hide(*_):
        raise PermissionError(errno.EPERM, "as with hidepid")

    monkeypatch.setattr(os, "open", hide)
    assert processes.identity(os.getpid()) is None
    monkeypatch.undo()
    assert processes.identity(os.getpid()).pid == os.getpid()


@pytest.mark.usefixtures("by_pidfd")
def test_identity_and_send_raise_when_no_descriptor_is_left(sleeper):
    process = processes.identity(sleeper.pid)
    with no_descriptors():
        with pytest.raises(OSError, match="Too many open files"):
            processes.identity(sleeper.pid)
        with pytest.raises(OSError, match="Too many open files"):
            processes.send(process, signal.SIGKILL)
    assert sleeper.poll() is None


@pytest.mark.skipif(not linux.has_pidfd(), reason="no pidfds on this system")
def test_send_to_members_signals_only_members_in_order(monkeypatch):
    signalled = []

    def record(pidfd, _):
        with open(f"/proc/self/fdinfo/{pidfd}") as info:
            signalled.extend(int(line[4:]) for line in info if line.startswith("Pid:"))

    monkeypatch.setattr(signal, "pidfd_send_signal", record)
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(12)]
    try:
        pids = [process.pid for process in sleepers]
        for order in (pids, pids[::-1]):
            signalled.clear()
            processes.send_to_members(order, signal.SIGTERM, lambda: pids[1:])
            assert signalled == [pid for pid in order if pid != pids[0]]
    finally:
        for process in sleepers:
            process.kill()
            process.wait()


def test_has_pidfd_is_false_without_pidfds(monkeypatch):
    def refuse(_):
        raise OSError

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert linux.has_pidfd() is False
    monkeypatch.delattr(os, "pidfd_open")
    assert linux.has_pidfd() is False


def test_become_subreaper_succeeds():
    code = "from acpterm.pty import linux; print(linux.become_subreaper())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"True\n"
