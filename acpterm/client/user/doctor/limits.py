"""Tests which limits of terminals' programs work: for each limit, a small program exceeds it.

Each program first checks that its limit is set. The load of each program is bounded, so a limit
that does not work causes no harm. All programs run at the same time, for less than two seconds.

Like the other trials of `acpterm doctor`, the programs run as children of this command. A daemon
that systemd starts has its own control groups, in which other limits may work.
"""

import os
import sys
from collections import defaultdict
from typing import Final, NamedTuple

import trio

from acpterm.client.user.doctor.check import CheckResult, missing, ok, problem
from acpterm.client.user.doctor.probes import open_pool
from acpterm.client.user.format import summary_line
from acpterm.config import Settings
from acpterm.pty.limits import LimitError
from acpterm.pty.program import Program
from acpterm.pty.tracking.trees import TrackingError
from acpterm.terminal.pool import Pool

_NAME: Final = "limits"
# Seconds for one program. Shorter than the timeout of a whole check, in `runner`.
_TIMEOUT_S: Final = 2.5
_MIB: Final = 1024 * 1024
_ADVICE: Final = (
    "a profile with such a limit refuses terminals, unless its unenforceable_limits = 'warn'; for "
    "control groups run the daemon as systemd service (Delegate=yes, see systemd/acpterm.service)"
)
# The beginning of all programs. `group` reads a file of the program's own control group; `need`
# ends the program if its limit is not set.
_PRELUDE: Final = """
import os, resource, signal, sys, tempfile, time
def group(name):
    with open("/proc/self/cgroup") as file:
        path = next(line[3:].strip() for line in file if line.startswith("0::"))
    with open("/proc/self/mountinfo") as file:
        mount = next(line.split() for line in file if " - cgroup2 " in line)
    path = os.path.relpath(path, mount[3])
    with open(os.path.join(mount[4], path, name)) as file:
        return file.read().split()
def need(is_set):
    if not is_set:
        sys.exit("the limit is not set")
"""


class Trial(NamedTuple):
    """A limit and its test program.

    `program` is the text of a Python program, which runs with the limit `value`. If the limit
    works, the program either prints `enforced`, or is ended by the limit.
    """

    value: float
    program: str


_TRIALS: Final = {
    # The program allocates at most 64 MiB, in an address space of 512 MiB.
    "memory": Trial(
        16 * _MIB,
        """
need(group("memory.max") == ["16777216"])
resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
kept = [bytearray(b"x" * (1 << 20)) for _ in range(64)]
""",
    ),
    # The program uses at most 0.2 s of CPU time, and runs for at most 1.5 s. The kernel counts how
    # often it has paused the control group.
    "cpu": Trial(
        0.25,
        """
need(group("cpu.max")[0] == "25000")
def paused():
    words = group("cpu.stat")
    return int(words[words.index("nr_throttled") + 1])
latest, end = time.monotonic() + 1.5, time.process_time() + 0.2
while not paused() and time.process_time() < end and time.monotonic() < latest:
    pass
print("enforced" if paused() else "not slowed down")
""",
    ),
    # The program starts at most 12 processes, which end by themselves after a second.
    "processes": Trial(
        8,
        """
need(group("pids.max") == ["8"])
pids = []
try:
    for _ in range(12):
        pid = os.fork()
        if pid == 0:
            time.sleep(1)
            os._exit(0)
        pids.append(pid)
    print("all could be started")
except OSError:
    print("enforced")
for pid in pids:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
""",
    ),
    "open_files": Trial(
        32,
        """
need(resource.getrlimit(resource.RLIMIT_NOFILE) == (32, 32))
try:
    for _ in range(64):
        os.dup(0)
    print("all could be opened")
except OSError:
    print("enforced")
""",
    ),
    "file_size": Trial(
        64 * 1024,
        """
need(resource.getrlimit(resource.RLIMIT_FSIZE) == (65536, 65536))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
with tempfile.TemporaryFile(buffering=0) as file:
    for _ in range(32):
        file.write(bytes(4096))
""",
    ),
    # The program writes at most 512 KiB past the cache (O_DIRECT), to the first of several
    # directories whose file system supports that.
    "disk_io": Trial(
        _MIB,
        """
import mmap
need(any("wbps=1048576" in word for word in group("io.max")))
data = mmap.mmap(-1, 65536)
result = "no disk could be written to without a cache"
for directory in (tempfile.gettempdir(), "/var/tmp", os.path.expanduser("~")):
    try:
        handle, path = tempfile.mkstemp(dir=directory)
        os.unlink(path)
        disk = os.open(f"/proc/self/fd/{handle}", os.O_WRONLY | os.O_DIRECT)
        began = time.monotonic()
        for number in range(8):
            os.pwrite(disk, data, number * 65536)
    except OSError:
        continue
    result = "enforced" if time.monotonic() - began > 0.25 else f"not slowed down in {directory}"
    break
print(result)
""",
    ),
}


async def limits(settings: Settings) -> list[CheckResult]:
    """Check which limits of terminals' programs are enforced on this machine."""
    enforced: list[str] = []
    refused: defaultdict[str, list[str]] = defaultdict(list)
    problems: list[CheckResult] = []

    async def run(pool: Pool, name: str, trial: Trial) -> None:
        try:
            what = await _try(pool, name, trial)
        except LimitError as error:
            refused[error.reason].append(name)
            return
        if what is None:
            enforced.append(name)
        else:
            found = f"{name} was set, but was not seen to work: {what}"
            problems.append(problem(_NAME, found, "do not rely on this limit here"))

    try:
        async with open_pool(settings) as (pool, _), trio.open_nursery() as nursery:
            for name, trial in _TRIALS.items():
                nursery.start_soon(run, pool, name, trial)
    except TrackingError as error:
        return [problem(_NAME, summary_line(str(error)), "see the setting tracking")]
    results = []
    if enforced:
        results.append(ok(_NAME, f"enforced here: {_sorted(enforced)}"))
    for reason, names in refused.items():
        found = f"not enforced here: {_sorted(names)}: {summary_line(reason)}"
        results.append(missing(_NAME, found, _ADVICE))
    return [*results, *problems]


async def _try(pool: Pool, name: str, trial: Trial) -> str | None:
    """Run the program of `trial` in a terminal of `pool`; return None if the limit `name` works."""
    program = Program(
        argv=[sys.executable, "-I", "-S", "-c", _PRELUDE + trial.program],
        env=os.environ,
        cwd="/",
        umask=0o77,
    )
    terminal = await pool.create(program, limits={name: trial.value})
    with trio.move_on_after(_TIMEOUT_S):
        status = await terminal.wait_exited()
        output = terminal.text.text().strip()
        if output == "enforced" or (status.cause is not None and status.cause.limit == name):
            return None
        return summary_line(output or f"the program exited with {status.code or status.signal}")
    return f"the program did not end in {_TIMEOUT_S:g} s"


def _sorted(names: list[str]) -> str:
    return ", ".join(name for name in _TRIALS if name in names)
