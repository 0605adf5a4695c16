"""`terminal/output` of a quiet terminal while four others run `yes`."""

from benchmarks.client import Client, polls
from benchmarks.figure import Figure, compare, p50, p99
from benchmarks.processes import Daemon


def measure(*, quick: bool) -> list[Figure]:
    rounds, count = (3, 100) if quick else (5, 400)
    alone: list[float] = []
    beside: list[float] = []
    with Daemon() as daemon:
        client = Client(daemon.socket)
        quiet = client.create("/bin/cat")
        polls(client, quiet, 20, 0.005)
        for _ in range(rounds):
            alone += polls(client, quiet, count, 0.005)
            others = Client(daemon.socket)
            for _ in range(4):
                others.create("/usr/bin/yes")
            beside += polls(client, quiet, count, 0.005)
            others.close()
            # Its terminals end behind this.
            polls(client, quiet, 20, 0.02)
        client.close()
    return [
        compare(
            "output of a quiet terminal while four run yes, p99", "ms", p99(beside), p99(alone),
            more=5, host_p50=p50(beside), baseline_p50=p50(alone), host_max=max(beside),
        )
    ]  # fmt: skip
