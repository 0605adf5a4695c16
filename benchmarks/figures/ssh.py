"""A host that ssh reaches: a short command, and a flood.

The measurement starts an sshd on loopback. The baselines are sessions of a connection like the
daemon's, with the same ssh: `ssh HOST true`, and `ssh HOST cat FILE` into a pipe. The output of a
terminal passes a PTY at both ends, in small pieces, so it cannot reach the throughput of that pipe.
Therefore the most that a terminal could reach is measured, too: `ssh -tt HOST cat FILE` on a PTY
that is only read.
"""

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.client import Client
from benchmarks.figure import Figure, compare, p50, report
from benchmarks.processes import Bare, Daemon, lines
from tests.support.sshd import SSHD, Sshd, running

MB = 1_000_000


def measure(*, quick: bool) -> list[Figure]:
    if SSHD is None:
        raise RuntimeError("requires sshd: apt-get install openssh-server")
    with _server() as server, _daemon(server) as client, _master(server) as ssh, Bare() as bare:
        count = 10 if quick else 60
        return [*_short(client, ssh, bare, count), *_flood(client, ssh, bare, quick=quick)]


@contextlib.contextmanager
def _server() -> Iterator[Sshd]:
    with (
        tempfile.TemporaryDirectory(prefix="acpterm-bench-") as directory,
        running(Path(directory)) as server,
    ):
        yield server


@contextlib.contextmanager
def _daemon(server: Sshd) -> Iterator[Client]:
    file = server.directory / "acpterm.toml"
    file.write_text(f'provider = "ssh:box"\n[ssh.box]\nconfig = "{server.config}"\n')
    with Daemon(config=str(file)) as daemon:
        yield daemon.client()


@contextlib.contextmanager
def _master(server: Sshd) -> Iterator[list[str]]:
    """Open a connection; yield the beginning of the argv of its sessions."""
    options = ("-S", str(server.directory / "master"))
    if server.client(*options, "-M", "-N", "-f"):
        raise RuntimeError("ssh cannot connect")
    try:
        yield server.argv(*options)
    finally:
        server.client(*options, "-O", "exit")


def _short(client: Client, ssh: list[str], bare: Bare, count: int) -> list[Figure]:
    theirs: list[float] = []
    on_pty: list[float] = []
    answered: list[float] = []
    ours: list[float] = []
    for number in range(count + 3):
        before = time.perf_counter()
        subprocess.run([*ssh, "true"], stdin=subprocess.DEVNULL, check=True)
        their = 1000 * (time.perf_counter() - before)
        (pty,) = bare("spawn_and_wait", 1, "/usr/bin/env", *ssh[:-1], "-tt", ssh[-1], "true")
        before = time.perf_counter()
        terminal = client.create("true")
        created = 1000 * (time.perf_counter() - before)
        client.wait(terminal)
        whole = 1000 * (time.perf_counter() - before)
        client.release(terminal)
        # The release continues on the other host; it must not slow the baselines.
        time.sleep(0.1)
        if number >= 3:
            theirs.append(their)
            on_pty.append(pty)
            answered.append(created)
            ours.append(whole)
    return [
        compare(
            "ssh: create of true, p50 (baseline: ssh HOST true)", "ms", p50(answered), p50(theirs),
            at_most=1.3, rounds=answered, baseline_rounds=theirs,
        ),
        report(
            "ssh: life of true, p50 (baseline: ssh HOST true)", "ms", p50(ours), p50(theirs),
            rounds=ours,
        ),
        report(
            "ssh: life of true, p50 (baseline: ssh -tt HOST true)", "ms", p50(ours), p50(on_pty),
            baseline_rounds=on_pty,
        ),
    ]  # fmt: skip


def _flood(client: Client, ssh: list[str], bare: Bare, *, quick: bool) -> list[Figure]:
    size, rounds = (10 * MB, 2) if quick else (100 * MB, 5)
    piped: list[float] = []
    on_pty: list[float] = []
    ours: list[float] = []
    with lines(size, coloured=False) as file:
        for _ in range(rounds):
            before = time.perf_counter()
            subprocess.run([*ssh, f"cat {file}"], stdout=subprocess.DEVNULL, check=True)
            piped.append(_rate(size, before))
            (ms,) = bare("read", 1, "/usr/bin/env", *ssh[:-1], "-tt", ssh[-1], f"cat {file}")
            on_pty.append(size / MB / (ms / 1000))
            before = time.perf_counter()
            terminal = client.create("cat", file)
            client.wait(terminal)
            ours.append(_rate(size, before))
            if len(client.output(terminal)["output"]) < MB * 0.8:
                raise RuntimeError("the terminal does not have its last megabyte of text")
            client.release(terminal)
    name = f"ssh: {size // MB} MB of 80-column lines"
    return [
        compare(
            f"{name} (baseline: ssh HOST cat, into a pipe)", "MB/s", p50(ours), p50(piped),
            at_least=0.9, rounds=ours, baseline_rounds=piped,
        ),
        compare(
            f"{name} (baseline: ssh -tt HOST cat)", "MB/s", p50(ours), p50(on_pty), at_least=0.9,
            baseline_rounds=on_pty,
        ),
        report(
            f"ssh -tt HOST cat of {size // MB} MB (baseline: ssh HOST cat, into a pipe)", "MB/s",
            p50(on_pty), p50(piped),
        ),
    ]  # fmt: skip


def _rate(size: int, since: float) -> float:
    return size / MB / (time.perf_counter() - since)
