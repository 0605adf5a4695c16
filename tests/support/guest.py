"""Runs a command in a separate Linux kernel: User Mode Linux, which is an ordinary process.

The guest's root file system is that of this machine, read-only. It has its own processes, memory,
control groups with all controllers of version 2, and a disk, so tests may exhaust them. It has
`MEMORY_MIB` of memory, one processor, and no network. When the guest ends, none of its processes or
files is left.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

MEMORY_MIB = 512
DISK_MIB = 64
PROCESSES_MAX = 300
"""Processes and threads that can exist in the guest."""
_TIMEOUT_S = 150
_STATUS = "guest-status:"
# The guest's own files are in /run, not in /tmp, where the tests or Python may be.
_INIT = """\
#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /run &&
  mkdir -p /dev/pts /dev/shm /run/tmp &&
  mount -t devpts devpts /dev/pts && mount -t tmpfs tmpfs /dev/shm &&
  mount -t cgroup2 cgroup2 /sys/fs/cgroup &&
  echo {processes} >/proc/sys/kernel/threads-max &&
  cd {directory} && env -i PATH="$PATH" {environment} {command} </dev/null
echo "{status}$?"
echo o >/proc/sysrq-trigger
sleep 60
"""


class GuestResult(NamedTuple):
    """The exit status of a command in the guest, and all that the guest printed."""

    status: int
    output: str


def run_in_guest(tmp_path: Path, *command: str) -> GuestResult:
    """Run a command as root in a new guest, in the current directory."""
    if (kernel := shutil.which("linux.uml")) is None:
        pytest.skip("a kernel of its own needs linux.uml (Debian: user-mode-linux)")
    init = tmp_path / "init"
    init.write_text(
        _INIT.format(
            processes=PROCESSES_MAX,
            directory=shlex.quote(str(Path.cwd())),
            environment=shlex.join(_environment()),
            command=shlex.join(command),
            status=_STATUS,
        )
    )
    init.chmod(0o755)
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(DISK_MIB * 1024 * 1024)
    arguments = [kernel, "rootfstype=hostfs", "rootflags=/", "ro", f"mem={MEMORY_MIB}M", "quiet"]
    arguments += [f"init={init}", f"ubd0={disk}", f"uml_dir={tmp_path}", "con=null"]
    arguments += ["con0=null,fd:1"]
    guest = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output = guest.communicate(timeout=_TIMEOUT_S)[0].decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        os.killpg(guest.pid, signal.SIGKILL)
        output = guest.communicate()[0].decode(errors="replace")
        raise AssertionError(f"the guest did not end in {_TIMEOUT_S} s:\n{output}") from error
    finally:
        # The guest's processes are processes of this machine too.
        with_group = guest.poll() is None
        if with_group:
            os.killpg(guest.pid, signal.SIGKILL)
    words = [line.partition(_STATUS)[2] for line in output.splitlines() if _STATUS in line]
    assert words, f"the guest ended without a status:\n{output}"
    return GuestResult(int(words[-1]), output)


def _environment() -> list[str]:
    return [
        "HOME=/run",
        "LC_ALL=C.UTF-8",
        "PYTHONDONTWRITEBYTECODE=1",
        f"PYTHONPATH={os.pathsep.join(filter(None, sys.path))}",
        "TMPDIR=/run/tmp",
        "ACPTERM_IN_GUEST=1",
    ]
