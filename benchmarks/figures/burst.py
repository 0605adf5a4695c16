"""Many creations in one go, and what somebody else on the daemon notices of them."""

import time

from benchmarks.client import SESSION, Client
from benchmarks.figure import Figure, below, p50, p99, report
from benchmarks.processes import Bare, Daemon, poller

_TRUE = "/bin/true"


def measure(*, quick: bool) -> list[Figure]:
    rounds, count = (2, 100) if quick else (5, 500)
    host: list[float] = []
    bare: list[float] = []
    quiet: list[float] = []
    with Daemon() as daemon, Bare() as baseline:
        baseline("spawn_and_wait", 20, _TRUE)
        client = Client(daemon.socket)
        _burst(client, 20)
        for _ in range(rounds):
            bare.append(sum(baseline("spawn_and_wait", count, _TRUE)))
            with poller(daemon.socket) as taken:
                host.append(_burst(client, count))
            quiet += taken
        client.close()
    return [
        report(f"{count} creates at once, until all exited", "ms", p50(host), p50(bare)),
        below(
            "longest poll of a quiet terminal meanwhile", "ms", max(quiet), 50,
            p50=p50(quiet), p99=p99(quiet), polls=len(quiet),
        ),
    ]  # fmt: skip


def _burst(client: Client, count: int) -> float:
    params = {"sessionId": SESSION, "command": _TRUE, "args": []}
    before = time.perf_counter()
    creates = [client.encode("terminal/create", params) for _ in range(count)]
    client.send(b"".join(line for _, line in creates))
    ids = {id_ for id_, _ in creates}
    terminals = []
    waiting = count
    while waiting:
        answer = client.receive()
        if answer.id in ids:
            terminals.append({"sessionId": SESSION, "terminalId": answer.result["terminalId"]})
            client.send(client.encode("terminal/wait_for_exit", terminals[-1])[1])
        else:
            waiting -= 1
    taken = time.perf_counter() - before
    for terminal in terminals:
        client.release(terminal)
    return 1000 * taken
