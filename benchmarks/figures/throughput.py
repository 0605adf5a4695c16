"""A flood: lines of 80 columns through a terminal, with its ring and its text."""

import time

from benchmarks.client import Client
from benchmarks.figure import Figure, compare, p50
from benchmarks.processes import Bare, Daemon, lines

MB = 1_000_000


def measure(*, quick: bool) -> list[Figure]:
    size, rounds = (20 * MB, 3) if quick else (200 * MB, 7)
    host: list[float] = []
    bare: list[float] = []
    cpu: list[float] = []
    with lines(size) as file, Daemon() as daemon, Bare() as baseline:
        client = Client(daemon.socket)
        for _ in range(rounds):
            bare += [size / MB / (ms / 1000) for ms in baseline("read", 1, "/bin/cat", file)]
            used, before = daemon.cpu(), time.perf_counter()
            terminal = client.create("/bin/cat", file)
            client.wait(terminal)
            host.append(size / MB / (time.perf_counter() - before))
            cpu.append(daemon.cpu() - used)
            _check(client.output(terminal))
            client.release(terminal)
        client.close()
    name = f"{size // MB} MB of 80-column lines, until the exit is answered"
    return [
        compare(
            name, "MB/s", p50(host), p50(bare), at_least=1.2,
            host_rounds=host, baseline_rounds=bare, daemon_cpu_seconds=p50(cpu),
        )
    ]  # fmt: skip


def _check(output: dict[str, object]) -> None:
    if not output["truncated"] or len(str(output["output"])) != 1 << 20:
        raise RuntimeError("the terminal does not have its last mebibyte of text")
