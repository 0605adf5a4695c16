"""Many terminals that print 3 MB each at the same time: the total throughput in MB/s."""

import time
from pathlib import Path

from benchmarks.client import SESSION
from benchmarks.figure import Figure, compare, p50
from benchmarks.processes import Daemon, PlainServer, Server, lines

MB = 1_000_000
_TERMINALS = 32
_SIZE_MB = 3


def measure(*, quick: bool) -> list[Figure]:
    rounds = 1 if quick else 7
    rates: dict[str, list[float]] = {"acpterm": [], "plain": []}
    with lines(_SIZE_MB * MB) as file, Daemon() as daemon, PlainServer() as plain:
        servers = {"acpterm": daemon, "plain": plain}
        for server in servers.values():
            _flood(server, file, 2)
        for _ in range(rounds):
            for name, server in servers.items():
                rates[name].append(_flood(server, file, _TERMINALS))
    name = f"{_TERMINALS} terminals of {_SIZE_MB} MB at once, in all (baseline: plain server)"
    return [
        compare(
            name, "MB/s", p50(rates["acpterm"]), p50(rates["plain"]), at_least=1.3,
            rounds=rates["acpterm"], baseline_rounds=rates["plain"],
        )
    ]  # fmt: skip


def _flood(server: Server, file: str, count: int) -> float:
    """Return the MB/s of `count` terminals, from the first create until the last exit."""
    client = server.client()
    params = {"sessionId": SESSION, "command": "/bin/cat", "args": [file]}
    before = time.perf_counter()
    client.send(b"".join(client.encode("terminal/create", params)[1] for _ in range(count)))
    terminals = []
    waiting = count
    while waiting:
        result = client.receive().result
        if "terminalId" in result:
            terminal = {"sessionId": SESSION, "terminalId": result["terminalId"]}
            terminals.append(terminal)
            client.send(client.encode("terminal/wait_for_exit", terminal)[1])
        else:
            waiting -= 1
    taken = time.perf_counter() - before
    last = Path(file).read_text()[-1000:]
    for terminal in terminals:
        text = client.output(terminal)["output"]
        if not text.endswith(last) or len(text) < MB:
            raise RuntimeError(f"the last lines are missing: {text[-100:]!r}")
        client.release(terminal)
    client.close()
    return count * _SIZE_MB / taken
