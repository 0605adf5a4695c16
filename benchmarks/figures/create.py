"""A short command: until its creation is answered, and from its creation to its release."""

import time

from benchmarks.client import Client
from benchmarks.figure import Figure, compare, p50
from benchmarks.processes import Bare, Daemon

_TRUE = "/bin/true"


def measure(*, quick: bool) -> list[Figure]:
    rounds, count = (3, 30) if quick else (10, 100)
    spawned: list[float] = []
    created: list[float] = []
    whole: list[float] = []
    with Daemon() as daemon, Bare() as baseline:
        client = Client(daemon.socket)
        baseline("spawn", 20, _TRUE)
        _lives(client, 20)
        for _ in range(rounds):
            spawned += baseline("spawn", count, _TRUE)
            created += [_create(client) for _ in range(count)]
            whole += _lives(client, count)
        client.close()
    return [
        compare("create of /bin/true, p50", "ms", p50(created), p50(spawned), at_most=1.5),
        compare(
            "create, wait, output and release of true, p50", "ms", p50(whole), p50(spawned),
            at_most=2,
        ),
    ]  # fmt: skip


def _create(client: Client) -> float:
    before = time.perf_counter()
    terminal = client.create(_TRUE)
    taken = time.perf_counter() - before
    client.wait(terminal)
    client.release(terminal)
    return 1000 * taken


def _lives(client: Client, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        before = time.perf_counter()
        terminal = client.create("true", argv=False)
        client.wait(terminal)
        client.output(terminal)
        client.release(terminal)
        taken.append(1000 * (time.perf_counter() - before))
    return taken
