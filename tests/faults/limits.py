"""Wrappers that limit a daemon's descriptors, PTYs or processes.

A wrapper is put in front of the daemon's argv. Before a test exhausts a resource, it checks in the
daemon's processes that the limit is in force.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_SHELL = ["sh", "-c"]
_MOUNT_PTYS = (
    "mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,max={max} devpts /dev/pts"
    ' && mount --bind /dev/pts/ptmx /dev/ptmx && exec "$@"'
)
_COUNT_PTYS = """
import os
opened = 0
try:
    for _ in range(1000):
        os.openpty()
        opened += 1
except OSError:
    print(opened)
"""
_REMOVE_TIMEOUT_S = 5
_PIDS_DIRECTORIES = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")


def few_descriptors(count: int) -> list[str]:
    """Return a wrapper that limits open files, soft and hard."""
    return [*_SHELL, f'ulimit -n {count} && exec "$@"', "sh"]


def few_ptys(count: int) -> list[str]:
    """Return a wrapper that gives the daemon its own devpts mount with `count` PTYs.

    The wrapper is tried first; if it does not work, the test is skipped.
    """
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if os.geteuid():
        unshare.insert(1, "--map-root-user")
    wrapper = [*unshare, *_SHELL, _MOUNT_PTYS.format(max=count), "sh"]
    done = subprocess.run(
        [*wrapper, sys.executable, "-I", "-S", "-c", _COUNT_PTYS],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    if done.stdout.strip() != str(count):
        pytest.skip(f"this process cannot mount a devpts of its own: {done.stderr.strip()}")
    return wrapper


@contextmanager
def few_processes(count: int) -> Iterator[list[str]]:
    """Yield a wrapper that puts the daemon into a control group with `pids.max`.

    If no control group can be created and this is not root, it sets RLIMIT_NPROC instead.
    """
    for directory in _PIDS_DIRECTORIES:
        group = Path(directory, f"acpterm-faults-{os.getpid()}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if not (group / "pids.max").exists():
                continue
            (group / "pids.max").write_text(str(count))
            yield [*_SHELL, f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
            return
        finally:
            _remove(group)
    if not os.geteuid():
        pytest.skip("there is no control group with the pids controller that can be used")
    yield [*_SHELL, f'ulimit -u {_own_processes() + count} && exec "$@"', "sh"]


def _remove(group: Path) -> None:
    """Remove a test's control group, and kill processes that a failed test has left in it."""
    processes = group / "cgroup.procs"
    deadline = time.monotonic() + _REMOVE_TIMEOUT_S
    while True:
        for pid in processes.read_text().split() if processes.exists() else ():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def check_few_processes(pid: int, count: int) -> None:
    """Raise AssertionError if the process `pid` can have more than `count` processes."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for directory in _PIDS_DIRECTORIES:
            limit = Path(directory + path, "pids.max")
            if controllers in ("", "pids") and limit.exists():
                value = limit.read_text().strip()
                if value != "max" and int(value) <= count:
                    return
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NPROC)
    assert os.geteuid() != 0, "RLIMIT_NPROC does not limit root"
    assert 0 < soft <= hard <= _own_processes() + count, f"no limit is in force: {soft}, {hard}"


def _own_processes() -> int:
    uid = os.getuid()
    return sum(
        1
        for entry in os.scandir("/proc")
        if entry.name.isdecimal() and entry.stat(follow_symlinks=False).st_uid == uid
    )


def memory_size(pid: int) -> int:
    """Return the size of a process's address space in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
