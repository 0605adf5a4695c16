"""The throughput of a flood through one terminal, without and with colours, in MB/s.

The daemon processes all output of the flood: its ring, its text and its emulator are in use.
"""

import time

from benchmarks.client import Client
from benchmarks.figure import Figure, above, compare, p50
from benchmarks.processes import Bare, Daemon, PlainServer, lines

MB = 1_000_000


def measure(*, quick: bool) -> list[Figure]:
    size, rounds = (20 * MB, 2) if quick else (200 * MB, 7)
    return [
        *_flood("80-column lines", size, rounds, coloured=False, at_least=1.15, lowest=0.95),
        *_flood("coloured lines", size, rounds, coloured=True, at_least=0.8, lowest=None),
    ]


def _flood(
    what: str, size: int, rounds: int, *, coloured: bool, at_least: float, lowest: float | None
) -> list[Figure]:
    host: list[float] = []
    bare: list[float] = []
    plain: list[float] = []
    cpu: list[float] = []
    with (
        lines(size, coloured=coloured) as file,
        Daemon() as daemon,
        PlainServer() as plain_server,
        Bare() as baseline,
    ):
        client, plain_client = daemon.client(), plain_server.client()
        for _ in range(rounds):
            bare += [size / MB / (ms / 1000) for ms in baseline("read", 1, "/bin/cat", file)]
            used = daemon.cpu()
            host.append(_rate(client, file, size))
            cpu.append(daemon.cpu() - used)
            plain.append(_rate(plain_client, file, size))
    name = f"{size // MB} MB of {what}, until the exit is answered"
    ratios = [ours / theirs for ours, theirs in zip(host, bare, strict=True)]
    figures = [
        compare(
            name, "MB/s", p50(host), p50(bare), plain=p50(plain), at_least=at_least,
            rounds=host, baseline_rounds=bare, plain_rounds=plain, daemon_cpu_s=p50(cpu),
        )
    ]  # fmt: skip
    if lowest is not None:
        figures.append(above(f"{name}: lowest of {rounds} runs", "times", min(ratios), lowest))
    return figures


def _rate(client: Client, file: str, size: int) -> float:
    before = time.perf_counter()
    terminal = client.create("/bin/cat", file)
    client.wait(terminal)
    taken = time.perf_counter() - before
    output = client.output(terminal)
    if not output["truncated"] or len(output["output"]) < MB * 0.8:
        raise RuntimeError("the terminal does not have its last megabyte of text")
    client.release(terminal)
    return size / MB / taken
