"""The time of `terminal/output` for a terminal whose text is full and does not change."""

import tempfile
import time
from collections.abc import Callable

import msgspec

from benchmarks.client import Answer, Client, Lines
from benchmarks.figure import Figure, compare, p50
from benchmarks.processes import Daemon, encoder, lines


def measure(*, quick: bool) -> list[Figure]:
    rounds, count = (3, 30) if quick else (10, 100)
    host: list[float] = []
    bare: list[float] = []
    with lines(3 << 20) as file, Daemon() as daemon, tempfile.NamedTemporaryFile("w") as text:
        client = Client(daemon.socket)
        terminal = client.create("/bin/cat", file)
        client.wait(terminal)
        text.write(client.output(terminal)["output"])
        text.flush()
        with encoder(text.name) as sock:
            answers = Lines(sock)
            decode = msgspec.json.Decoder(Answer).decode

            def echo() -> dict[str, str]:
                sock.sendall(b"?")
                return decode(answers.next()).result

            if (
                len(echo()["output"]) != 1 << 20
                or client.output(terminal)["output"] != echo()["output"]
            ):
                raise RuntimeError("host and baseline do not answer the same mebibyte")
            for _ in range(rounds):
                bare += _timed(count, echo)
                host += _timed(count, lambda: client.output(terminal))
        client.close()
    name = "output of an unchanged buffer of 1 MiB, p50"
    return [compare(name, "ms", p50(host), p50(bare), at_most=1.5)]


def _timed(count: int, function: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(count):
        before = time.perf_counter()
        function()
        taken.append(1000 * (time.perf_counter() - before))
    return taken
