"""What a terminal costs the daemon in memory: idle, and full of text."""

from benchmarks.client import Client
from benchmarks.figure import Figure, below, report
from benchmarks.processes import Daemon, lines


def measure(*, quick: bool) -> list[Figure]:
    return _idle(100 if quick else 500) + _full(20)


def _idle(count: int) -> list[Figure]:
    with Daemon() as daemon:
        client = Client(daemon.socket)
        _warm_up(client)
        before = daemon.memory()
        for _ in range(count):
            client.create("/bin/sleep", "1000")
        after = daemon.memory()
        client.close()
    each = {name: (after[name] - before[name]) / count for name in before}
    return [
        below(f"memory of an idle terminal, of {count}", "KiB", each["Rss"], 32, pss=each["Pss"])
    ]


def _full(count: int) -> list[Figure]:
    with lines(3 << 20) as file, Daemon() as daemon:
        client = Client(daemon.socket)
        _warm_up(client)
        before = daemon.memory()
        terminals = [client.create("/bin/cat", file) for _ in range(count)]
        for terminal in terminals:
            client.wait(terminal)
        after = daemon.memory()
        for terminal in terminals:
            client.output(terminal)
        polled = daemon.memory()
        client.close()
    each = {name: (after[name] - before[name]) / count / 1024 for name in before}
    read = (polled["Rss"] - before["Rss"]) / count / 1024
    name = f"memory of a terminal with 1 MiB of text, of {count}"
    return [
        below(name, "MiB", each["Rss"], 2.5, pss=each["Pss"]),
        report(f"{name}, after an output of each", "MiB", read, None),
    ]


def _warm_up(client: Client) -> None:
    for _ in range(5):
        terminal = client.create("/bin/echo", "warm")
        client.wait(terminal)
        client.output(terminal)
        client.release(terminal)
