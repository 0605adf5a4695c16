"""Hundreds of terminals of one daemon on other hosts: on a cluster with many nodes, and by ssh.

The measurement starts the cluster and the sshd on loopback, so this machine runs both ends of each
terminal. Each agent has an allocation with a node of its own. The times are those of a machine
that is busy with the load itself.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks import usage
from benchmarks.bounds import Watch, bounded
from benchmarks.crowd import Crowd
from benchmarks.figure import Figure, above, below, p50, p99, report
from benchmarks.processes import Daemon, cpu_time
from tests.support import slurm, sshd

# The limits by the kernel, and below them those of `bounds.Watch`.
_PROCESSES_MAX, _MEMORY_MAX_MIB = 24_000, 16_000
_THREADS_MAX, _FREE_MIN_MIB = 22_000, 3_000
_FILL_TIMEOUT_S = 900.0
_GONE_TIMEOUT_S = 300.0
_LEFT_TIMEOUT_S = 10.0
_CONTROLLERS_OWN = "slurmscriptd"


class _Place(NamedTuple):
    """A place, with functions that return its jobs and processes.

    `jobs` returns the number of the cluster's jobs. `supervisors` returns the place's processes
    that `usage.found` does not find: those that supervise the steps of a cluster.
    """

    name: str
    jobs: Callable[[], int] = lambda: 0
    supervisors: Callable[[], list[psutil.Process]] = list


class _Size(NamedTuple):
    """The size of a load: `agents` agents, each with `each` terminals.

    `rounds` is how often latencies are measured, `idle_s` for how long idle processes are measured.
    """

    agents: int
    each: int
    rounds: int
    idle_s: float


def measure(*, quick: bool) -> list[Figure]:
    missing = [*slurm.MISSING, *([] if sshd.SSHD else ["sshd"])]
    if missing:
        raise RuntimeError(
            f"requires {', '.join(missing)}: apt-get install slurm-wlm munge openssh-server"
        )
    usage.mark()
    with contextlib.nullcontext() if quick else bounded(_PROCESSES_MAX, _MEMORY_MAX_MIB):
        figures = []
        size = _Size(3, 10, 5, 1.0) if quick else _Size(20, 25, 40, 10.0)
        with _directory() as directory, slurm.running(directory, size.agents, 64) as cluster:
            place = '[slurm.box]\nsession = true\noptions = ["--exclusive"]\n'
            config = f'provider = "slurm:box"\n{place}config = "{cluster.config}"\n'
            figures += _load(
                _Place("slurm", lambda: len(cluster.jobs()), cluster.steps), directory, config, size
            )
        size = _Size(4, 5, 5, 1.0) if quick else _Size(10, 20, 40, 10.0)
        limits = ("MaxSessions 50", "MaxStartups 100")
        with _directory() as directory, sshd.running(directory, *limits) as server:
            place = f'[ssh.box]\nsessions = 50\nconfig = "{server.config}"\n'
            figures += _load(_Place("ssh"), directory, f'provider = "ssh:box"\n{place}', size)
    return figures


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """Yield a new directory; its `run` is `XDG_RUNTIME_DIR` during the block."""
    before = os.environ.get("XDG_RUNTIME_DIR")
    with tempfile.TemporaryDirectory(prefix="acpterm-bench-") as directory:
        (run := Path(directory, "run")).mkdir(0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(run)
        try:
            yield Path(directory)
        finally:
            del os.environ["XDG_RUNTIME_DIR"]
            if before is not None:
                os.environ["XDG_RUNTIME_DIR"] = before


def _load(place: _Place, directory: Path, config: str, size: _Size) -> list[Figure]:
    """Measure a load of one daemon; `config` is the text of its settings file."""
    file = directory / "acpterm.toml"
    file.write_text(config)
    count = size.agents * size.each
    name = f"{count} terminals, {place.name}"
    with Daemon(config=str(file)) as daemon:
        worker = daemon.worker()
        assert worker is not None
        pids = {daemon.pid: "keeper", worker: "worker"}
        crowd = Crowd(daemon, size.agents, size.each)
        with Watch(_THREADS_MAX, _FREE_MIN_MIB, crowd.stop) as watch:
            used = {label: cpu_time(pid) for pid, label in pids.items()}
            answered, ran = crowd.fill(_FILL_TIMEOUT_S)
            used = {label: cpu_time(pid) - used[label] for pid, label in pids.items()}
            quiet = _busy(pids, size.idle_s)
            kinds = usage.by_kind(pids, place.supervisors())
            figures = [
                report(f"{name}: until all creates are answered", "s", answered, None),
                report(f"{name}: creates a second", "1/s", count / answered, None),
                report(f"{name}: until all programs run", "s", ran, None),
                *_latencies(f"{name}: create, while all start", crowd.create_ms()),
                *_latencies(f"{name}: create, once all run", crowd.again_ms(size.rounds)),
                *_latencies(f"{name}: terminal/output", crowd.output_ms(10 * size.rounds)),
                *_latencies(f"{name}: list of all terminals", crowd.list_ms(size.rounds)),
                *_latencies(f"{name}: acpterm ls", _ls_ms(daemon, size.rounds)),
                *_latencies(f"{name}: echo of a key", crowd.echo_ms(10 * size.rounds)),
            ]
            figures += [
                figure
                for pid, label in pids.items()
                for figure in (
                    report(f"{name}: {label}, processor time of the start", "s", used[label], None),
                    report(f"{name}: {label}, when all wait", "% of a core", quiet[label], None),
                    report(f"{name}: {label}, memory (PSS)", "MiB", kinds[label].pss_mib, None),
                    report(f"{name}: {label}, descriptors", "", usage.descriptors(pid), None),
                )
            ]
            figures += [
                report(
                    f"{name}: memory (PSS) of one {label}, of {kind.count}", "MiB", kind.pss_mib,
                    None, **kind._asdict(),
                )
                for label, kind in kinds.items()
                if label not in pids.values() and kind.count > 1
            ]  # fmt: skip
            figures.append(above(f"{name}: whole outputs", "", crowd.whole(), count))
            figures += _release(name, crowd, place)
        figures.append(report(f"{name}: threads of the machine, at most", "", watch.threads, None))
    return [*figures, _left(name, directory / "run", place)]


def _busy(pids: dict[int, str], seconds: float) -> dict[str, float]:
    """Return the processor time of idle processes, in percent of a core, by their labels.

    `pids` has the label of each process; `seconds` is how long to measure.
    """
    before, began = {pid: cpu_time(pid) for pid in pids}, time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - began
    return {label: 100 * (cpu_time(pid) - before[pid]) / took for pid, label in pids.items()}


def _latencies(name: str, taken: list[float]) -> list[Figure]:
    return [
        report(f"{name}, p50", "ms", p50(taken), None, rounds=taken),
        report(f"{name}, p99", "ms", p99(taken), None),
    ]


def _ls_ms(daemon: Daemon, count: int) -> list[float]:
    argv = [sys.executable, "-m", "acpterm", "ls"]
    env = {**os.environ, "ACPTERM_SOCKET": daemon.socket}
    taken = []
    for _ in range(count):
        before = time.perf_counter()
        subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
        taken.append(1000 * (time.perf_counter() - before))
    return taken


def _release(name: str, crowd: Crowd, place: _Place) -> list[Figure]:
    """Release all terminals, wait until no program and no job is left, and return the figures.

    Raises `TimeoutError` if some are left after `_GONE_TIMEOUT_S`.
    """
    began = time.perf_counter()
    taken = crowd.release()
    answered = time.perf_counter() - began
    crowd.close()
    while place.jobs() or any(_name(process) == "cat" for process in usage.found()):
        if time.perf_counter() - began > _GONE_TIMEOUT_S:
            raise TimeoutError("programs or jobs are left after the release")
        time.sleep(0.2)
    return [
        report(f"{name}: release of all, until answered", "s", answered, None, rounds=taken),
        report(f"{name}: release of all, until gone", "s", time.perf_counter() - began, None),
    ]


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return str(process.name())
    return ""


def _left(name: str, runtime: Path, place: _Place) -> Figure:
    """Count the processes, jobs and sockets that are left after the end of the daemon.

    Wait up to `_LEFT_TIMEOUT_S` until none is left.
    """
    # The servers of the place, and `connector`, are children of this process.
    own = {os.getpid(), *(child.pid for child in psutil.Process().children())}
    deadline = time.monotonic() + _LEFT_TIMEOUT_S
    left = ["?"]
    while left and time.monotonic() < deadline:
        found = [one for one in usage.found() + place.supervisors() if one.pid not in own]
        left = [label for one in found if (label := _name(one)) not in ("", _CONTROLLERS_OWN)]
        left += [str(path) for path in runtime.rglob("*") if path.is_socket()]
        left += ["a job"] * place.jobs()
    return below(f"{name}: processes, jobs and sockets left", "", len(left), 0, names=left)
