"""Runs a command that may exhaust the number of processes, within two bounds.

`python -m tests.support.bounded GROUP UID PROCESSES COMMAND…` joins the control group GROUP, whose
`pids.max` is the outer bound; sets RLIMIT_NPROC, the inner bound, and becomes the user UID, which
has no other process; checks that both bounds apply; and executes COMMAND.
"""

import contextlib
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# No real user has such a high uid. Each process that runs tests adds its pid, so uids differ.
FIRST_UID = 2_147_000_000
_PLACES = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")


@contextmanager
def bounds(processes: int) -> Iterator[list[str]]:
    """Set up both bounds for `processes` processes; kill the remaining processes at the end.

    Yield the words to put before a command, to run it within the bounds.
    """
    if os.geteuid() != 0:
        pytest.skip("another user requires root")
    if shutil.which("setpriv") is None:
        pytest.skip("another user requires setpriv")
    uid = FIRST_UID + os.getpid()
    with _group(2 * processes) as group:
        yield [sys.executable, "-m", "tests.support.bounded", group, str(uid), str(processes)]


@contextmanager
def _group(processes: int) -> Iterator[str]:
    for place in _PLACES:
        group = Path(place, f"acpterm-tests-{os.getpid()}-{os.urandom(4).hex()}")
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / "pids.max").exists():
            break
        group.rmdir()
    else:
        pytest.skip("there is no control group that bounds processes")
    (group / "pids.max").write_text(str(processes))
    try:
        yield str(group)
    finally:
        deadline = time.monotonic() + 10
        while pids := (group / "cgroup.procs").read_text().split():
            assert time.monotonic() < deadline, f"{len(pids)} processes cannot be killed"
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            time.sleep(0.02)
        group.rmdir()


def check(processes: int) -> None:
    """Raise AssertionError unless both bounds apply to this process."""
    assert os.getuid() == os.geteuid() >= FIRST_UID
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    assert 0 < soft <= hard <= processes
    with open("/proc/self/cgroup") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    group = next(
        path
        for _, controllers, path in lines
        if ("pids" in controllers.split(",") or not controllers) and "acpterm-tests-" in path
    )
    paths = [Path(place + group, "pids.max") for place in _PLACES]
    limits = [int(path.read_text()) for path in paths if path.exists()]
    assert limits
    assert max(limits) <= 2 * processes


def as_user(uid: int) -> list[str]:
    """Return the words to put before a command to run it as `uid`, with root's read access.

    Python may be installed in a directory that only root may enter.
    """
    caps = "-all,+dac_read_search"
    return [
        *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"),
        *(f"--inh-caps={caps}", f"--ambient-caps={caps}", f"--bounding-set={caps}"),
    ]


def main() -> None:
    group, uid, processes, *command = sys.argv[1:]
    limit = int(processes)
    if group:
        Path(group, "cgroup.procs").write_text("0")
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
        again = [sys.executable, "-m", "tests.support.bounded", "", uid, processes]
        command = [*as_user(int(uid)), *again, *command]
    else:
        check(limit)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
