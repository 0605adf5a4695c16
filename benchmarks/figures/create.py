"""A short command: the time until the response to its create, and from create to release.

The code of the session's leader starts the command, with both ways of tracking.
"""

import time

from benchmarks.client import Client
from benchmarks.figure import Figure, compare, p50
from benchmarks.processes import Bare, Daemon, PlainServer

_TRUE = "/bin/true"
_WAYS = (("subreaper", 0.5, 1.3), ("cgroup", 0.7, 1.8))


def measure(*, quick: bool) -> list[Figure]:
    rounds, count = (2, 30) if quick else (10, 100)
    return [figure for way in _WAYS for figure in _measure(*way, rounds, count)]


def _measure(
    tracking: str, create_at_most: float, life_at_most: float, rounds: int, count: int
) -> list[Figure]:
    spawned: list[float] = []
    waited: list[float] = []
    created: dict[str, list[float]] = {"acpterm": [], "plain": []}
    whole: dict[str, list[float]] = {"acpterm": [], "plain": []}
    with Daemon(tracking=tracking) as daemon, PlainServer() as plain, Bare() as baseline:
        clients = {"acpterm": daemon.client(), "plain": plain.client()}
        baseline("spawn", 20, _TRUE)
        for client in clients.values():
            lives_ms(client, 20)
        for _ in range(rounds):
            spawned += baseline("spawn", count, _TRUE)
            waited += baseline("spawn_and_wait", count, _TRUE)
            for name, client in clients.items():
                created[name] += [create_ms(client) for _ in range(count)]
                whole[name] += lives_ms(client, count)
    return [
        compare(
            f"create of true, {tracking}, p50 (baseline: ptyprocess.spawn)", "ms",
            p50(created["acpterm"]), p50(spawned), plain=p50(created["plain"]),
            at_most=create_at_most,
        ),
        compare(
            f"life of true, {tracking}, p50 (baseline: ptyprocess.spawn and wait)", "ms",
            p50(whole["acpterm"]), p50(waited), plain=p50(whole["plain"]), at_most=life_at_most,
        ),
    ]  # fmt: skip


def create_ms(client: Client) -> float:
    """Return the time until the response to a create of `true`, in milliseconds."""
    before = time.perf_counter()
    terminal = client.create(_TRUE)
    taken = time.perf_counter() - before
    client.wait(terminal)
    client.release(terminal)
    return 1000 * taken


def lives_ms(client: Client, count: int) -> list[float]:
    """Return the times from create to release of `true`, in milliseconds."""
    taken = []
    for _ in range(count):
        before = time.perf_counter()
        terminal = client.create(_TRUE)
        client.wait(terminal)
        client.output(terminal)
        client.release(terminal)
        taken.append(1000 * (time.perf_counter() - before))
    return taken
