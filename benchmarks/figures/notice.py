"""How long after a program's last instruction the response to `wait_for_exit` arrives."""

import sys
import time

from benchmarks.client import Client
from benchmarks.figure import Figure, compare, p50
from benchmarks.processes import Bare, Daemon, PlainServer

_PRINT_TIME_AND_EXIT = (
    "import os, time; os.write(1, b'%d' % time.clock_gettime_ns(time.CLOCK_MONOTONIC)); os._exit(0)"
)


def measure(*, quick: bool) -> list[Figure]:
    rounds, count = (2, 10) if quick else (10, 20)
    argv = (sys.executable, "-I", "-S", "-c", _PRINT_TIME_AND_EXIT)
    host: list[float] = []
    bare: list[float] = []
    plain: list[float] = []
    with Daemon() as daemon, PlainServer() as plain_server, Bare() as baseline:
        client, plain_client = daemon.client(), plain_server.client()
        for _ in range(rounds):
            bare += baseline("notice", count, *argv)
            host += [_notice(client, argv) for _ in range(count)]
            plain += [_notice(plain_client, argv) for _ in range(count)]
    name = "exit notice: last instruction to the answered wait, p50 (baseline: waitpid)"
    return [compare(name, "ms", p50(host), p50(bare), plain=p50(plain), more=0.5)]


def _notice(client: Client, argv: tuple[str, ...]) -> float:
    terminal = client.create(*argv)
    client.wait(terminal)
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    printed = client.output(terminal)["output"]
    client.release(terminal)
    return (now - int(printed)) / 1e6
