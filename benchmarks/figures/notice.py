"""How long after a program's last instruction its exit is known."""

import sys
import time

from benchmarks.client import Client
from benchmarks.figure import Figure, compare, p50
from benchmarks.processes import Bare, Daemon

_LAST_WORDS = (
    "import os, time; os.write(1, b'%d' % time.clock_gettime_ns(time.CLOCK_MONOTONIC)); os._exit(0)"
)


def measure(*, quick: bool) -> list[Figure]:
    rounds, count = (3, 10) if quick else (10, 20)
    argv = (sys.executable, "-I", "-S", "-c", _LAST_WORDS)
    host: list[float] = []
    bare: list[float] = []
    with Daemon() as daemon, Bare() as baseline:
        client = Client(daemon.socket)
        for _ in range(rounds):
            bare += baseline("notice", count, *argv)
            host += [_notice(client, argv) for _ in range(count)]
        client.close()
    name = "exit notice: last instruction to the answered wait, p50"
    return [compare(name, "ms", p50(host), p50(bare), more=1)]


def _notice(client: Client, argv: tuple[str, ...]) -> float:
    terminal = client.create(*argv)
    client.wait(terminal)
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    printed = client.output(terminal)["output"]
    client.release(terminal)
    return (now - int(printed)) / 1e6
