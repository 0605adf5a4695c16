"""A cluster: a short command in an allocation.

The measurement starts the cluster on loopback, with one allocation. The baseline is a step of
the same allocation on a PTY: `srun --pty true`. Two times of a terminal are compared with it: the
time until the response to the create, which does not wait for a step, and the time until the
response to `wait_for_exit`, which includes a step.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.client import Client
from benchmarks.figure import Figure, compare, p50, report
from benchmarks.processes import Bare, Daemon
from tests.support.slurm import MISSING, Slurm, running


def measure(*, quick: bool) -> list[Figure]:
    if MISSING:
        raise RuntimeError(f"requires {', '.join(MISSING)}: apt-get install slurm-wlm munge")
    with (
        tempfile.TemporaryDirectory(prefix="acpterm-bench-") as directory,
        running(Path(directory), 1) as cluster,
        Bare() as bare,
    ):
        job = cluster.allocate("--ntasks=1")
        with _daemon(cluster, job) as client:
            return _short(client, cluster, job, bare, 8 if quick else 40)


@contextlib.contextmanager
def _daemon(cluster: Slurm, job: str) -> Iterator[Client]:
    file = cluster.directory / "acpterm.toml"
    file.write_text(
        f'provider = "slurm:box"\n[slurm.box]\njob = {job}\nconfig = "{cluster.config}"\n'
    )
    with Daemon(config=str(file)) as daemon:
        yield daemon.client()


def _short(client: Client, cluster: Slurm, job: str, bare: Bare, count: int) -> list[Figure]:
    srun = ("srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", "--pty", "true")
    theirs: list[float] = []
    answered: list[float] = []
    ours: list[float] = []
    for number in range(count + 3):
        settings = f"SLURM_CONF={cluster.config}"
        (their,) = bare("spawn_and_wait", 1, "/usr/bin/env", settings, *srun)
        before = time.perf_counter()
        terminal = client.create("true")
        created = 1000 * (time.perf_counter() - before)
        client.wait(terminal)
        whole = 1000 * (time.perf_counter() - before)
        client.release(terminal)
        # The release continues in the background; it must not slow the baseline.
        time.sleep(0.1)
        if number >= 3:
            theirs.append(their)
            answered.append(created)
            ours.append(whole)
    return [
        compare(
            "slurm: life of true in an allocation, p50 (baseline: srun --pty true)", "ms",
            p50(ours), p50(theirs), at_most=1.2, rounds=ours, baseline_rounds=theirs,
        ),
        report(
            "slurm: create of true in an allocation, p50 (baseline: srun --pty true)", "ms",
            p50(answered), p50(theirs), rounds=answered,
        ),
    ]  # fmt: skip
