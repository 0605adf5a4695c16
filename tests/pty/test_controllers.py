"""The daemon's processes leave their control group, so that it can pass controllers on."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from acpterm.pty.tracking import controllers

_HIERARCHIES = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")


@pytest.fixture
def group():
    """Create a control group of version 2; remove it with its processes."""
    for hierarchy in _HIERARCHIES:
        found = Path(hierarchy, f"acpterm-tests-{os.getpid()}")
        if Path(hierarchy, "cgroup.controllers").exists():
            with contextlib.suppress(OSError):
                found.mkdir()
                break
    else:
        pytest.skip("requires the permission to create a control group of version 2")
    yield found
    for one in (found / controllers.DAEMON_GROUP, found):
        with contextlib.suppress(FileNotFoundError):
            one.rmdir()


@pytest.fixture
def start(group):
    """Return a function that starts a process in the group."""
    processes = []

    def run():
        process = subprocess.Popen(["sleep", "1000"])
        processes.append(process)
        (group / "cgroup.procs").write_text(str(process.pid))
        return process.pid

    yield run
    for process in processes:
        process.kill()
        process.wait()


def pids(group):
    return {int(word) for word in (group / "cgroup.procs").read_text().split()}


def test_process_that_starts_during_the_move_is_moved_too(group, start, monkeypatch):
    first, late = start(), []
    real = controllers._write

    def write(path, text):
        if not late:
            late.append(start())
        real(path, text)

    monkeypatch.setattr(controllers, "_write", write)
    assert controllers._move_processes(str(group), {os.getpid()}) is None
    assert pids(group) == set()
    assert pids(group / controllers.DAEMON_GROUP) == {first, *late}


def test_moving_ends_if_processes_always_start(group, start, monkeypatch):
    start()
    real = controllers._write

    def write(path, text):
        start()
        real(path, text)

    monkeypatch.setattr(controllers, "_write", write)
    reason = controllers._move_processes(str(group), {os.getpid()})
    assert reason is not None
    assert "faster" in reason


def test_processes_of_others_are_not_moved(group, start):
    pid = start()
    reason = controllers._move_processes(str(group), {1 << 30})
    assert reason is not None
    assert f"such as {pid}" in reason
    assert pids(group) == {pid}
