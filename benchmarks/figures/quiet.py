"""The time of a poll of a quiet terminal while `yes` floods one or four other terminals.

The baseline is a poll of the quiet terminal without any flood.
"""

from collections import defaultdict

from benchmarks.client import polls
from benchmarks.figure import Figure, compare, p50, p99
from benchmarks.processes import Daemon, PlainServer, Server

_PAUSE_S = 0.005
_P50_MORE_MS = {1: 0.6, 4: 1.0}
_P99_MORE_MS = 4


def measure(*, quick: bool) -> list[Figure]:
    rounds, count = (2, 60) if quick else (5, 400)
    with Daemon() as daemon, PlainServer() as plain:
        servers = {"acpterm": _Quiet(daemon), "plain": _Quiet(plain)}
        for _ in range(rounds):
            for number in (0, 1, 4):
                for server in servers.values():
                    server.poll(number, count)
    return [figure for number in (1, 4) for figure in _figures(servers, number)]


class _Quiet:
    """A server with a quiet terminal.

    `taken` has the milliseconds of each poll. The keys are the number of floods during the polls.
    """

    def __init__(self, server: Server) -> None:
        self.taken: defaultdict[int, list[float]] = defaultdict(list)
        self._server = server
        self._client = server.client()
        self._terminal = self._client.create("/bin/cat")
        polls(self._client, self._terminal, 50, _PAUSE_S)

    def poll(self, floods: int, count: int) -> None:
        """Poll `count` times during a number of floods, which another client starts and ends."""
        other = self._server.client()
        for _ in range(floods):
            other.create("/usr/bin/yes")
        self.taken[floods] += polls(self._client, self._terminal, count, _PAUSE_S)
        other.close()
        # These polls are not counted: the server kills the floods during them.
        polls(self._client, self._terminal, 20 if floods else 0, 0.02)


def _figures(servers: dict[str, _Quiet], number: int) -> list[Figure]:
    beside = {name: server.taken[number] for name, server in servers.items()}
    alone = {name: server.taken[0] for name, server in servers.items()}
    what = "poll of a quiet terminal beside " + ("one `yes`" if number == 1 else "four `yes`")
    return [
        compare(
            f"{what}, {label}", "ms", percentile(beside["acpterm"]), percentile(alone["acpterm"]),
            plain=percentile(beside["plain"]), more=more, plain_alone=percentile(alone["plain"]),
            longest=max(beside["acpterm"]), plain_longest=max(beside["plain"]),
        )
        for label, percentile, more in (
            ("p50", p50, _P50_MORE_MS[number]),
            ("p99", p99, _P99_MORE_MS),
        )
    ]  # fmt: skip
