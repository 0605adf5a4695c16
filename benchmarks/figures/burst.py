"""Many pipelined `terminal/create` requests, and the latency for another client during them."""

import time

from benchmarks.client import SESSION
from benchmarks.figure import Figure, below, compare, p50, p99
from benchmarks.processes import Bare, Daemon, PlainServer, Server, poller

_TRUE = "/bin/true"


def measure(*, quick: bool) -> list[Figure]:
    rounds, count = (1, 100) if quick else (5, 500)
    bare: dict[str, list[float]] = {"spawn": [], "spawn_and_wait": []}
    bursts: dict[str, list[tuple[float, float]]] = {"acpterm": [], "plain": []}
    with Daemon() as daemon, PlainServer() as plain, Bare() as baseline:
        servers = {"acpterm": daemon, "plain": plain}
        baseline("spawn", 20, _TRUE)
        for server in servers.values():
            _burst(server, 20)
        for _ in range(rounds):
            for what, values in bare.items():
                values.append(sum(baseline(what, count, _TRUE)))
            for name, server in servers.items():
                bursts[name].append(_burst(server, count))
        # Not in the same run as the throughput: the poller needs processor time.
        quiet: list[float] = []
        for _ in range(rounds):
            with poller(daemon.socket) as taken:
                _burst(daemon, count)
            quiet += taken
    created, exited = (
        {name: p50([burst[part] for burst in values]) for name, values in bursts.items()}
        for part in (0, 1)
    )
    return [
        compare(
            f"{count} creates pipelined, until all are answered (baseline: bare spawns)", "ms",
            created["acpterm"], p50(bare["spawn"]), plain=created["plain"], at_most=1,
        ),
        compare(
            f"{count} creates pipelined, until all have exited (baseline: spawns and waits)", "ms",
            exited["acpterm"], p50(bare["spawn_and_wait"]), plain=exited["plain"], at_most=1,
        ),
        below(
            "longest poll of a quiet terminal meanwhile", "ms", max(quiet), 50,
            p50=p50(quiet), p99=p99(quiet), polls=len(quiet),
        ),
    ]  # fmt: skip


def _burst(server: Server, count: int) -> tuple[float, float]:
    """Create `count` terminals; return the ms until the last response, and until the last exit."""
    client = server.client()
    params = {"sessionId": SESSION, "command": _TRUE, "args": []}
    before = time.perf_counter()
    creates = [client.encode("terminal/create", params) for _ in range(count)]
    client.send(b"".join(line for _, line in creates))
    ids = {id_ for id_, _ in creates}
    created = 0.0
    terminals = []
    waiting = count
    while waiting:
        answer = client.receive()
        if answer.id in ids:
            terminals.append({"sessionId": SESSION, "terminalId": answer.result["terminalId"]})
            if len(terminals) == count:
                created = time.perf_counter() - before
            client.send(client.encode("terminal/wait_for_exit", terminals[-1])[1])
        else:
            waiting -= 1
    exited = time.perf_counter() - before
    for terminal in terminals:
        client.release(terminal)
    client.close()
    return 1000 * created, 1000 * exited
