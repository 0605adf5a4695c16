"""The speed of a flood without a viewer, with one that reads, and with one that does not read."""

import contextlib
import socket
import statistics
import time
from collections.abc import Iterator

import msgspec

from benchmarks.client import SESSION, Client
from benchmarks.figure import Figure, below, compare, report
from benchmarks.processes import Daemon

MB = 1_000_000
TOKEN = "t"


def measure(*, quick: bool) -> list[Figure]:
    rounds, seconds, stopped = (2, 0.5, 1.0) if quick else (5, 2.0, 10.0)
    with Daemon() as daemon:
        agent = Client(daemon.socket)
        user = Client(daemon.socket.replace("agent.sock", "user.sock"))
        terminal = agent.create("yes", "y" * 78)["terminalId"]
        agent.send(_embedding(terminal))
        ways = {"alone": None, "subscriber": _subscribe, "attached": _attach}
        pace: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, viewer in ways.items():
                with _stopped(daemon, viewer, terminal):
                    pace[way].append(_pace(user, terminal, seconds))
        with _stopped(daemon, _subscribe, terminal):
            # Wait until the send queue is full.
            time.sleep(stopped / 10)
            before = daemon.memory()["rss"]
            _pace(user, terminal, stopped)
            grown = daemon.memory()["rss"] - before
        read = _pace_when_read(daemon, user, terminal, seconds)
        agent.close()
        user.close()
    alone = statistics.median(pace["alone"])
    figures = [
        compare(
            f"a flood beside a {what} that does not read", "MB/s", statistics.median(pace[way]),
            alone, at_least=0.9, rounds=pace[way], alone_rounds=pace["alone"],
        )
        for way, what in (("subscriber", "subscriber"), ("attached", "window"))
    ]  # fmt: skip
    return [
        *figures,
        below(f"memory in {stopped:g} s of a subscriber that does not read", "KiB", grown, 1024),
        report("a flood beside a window that is read", "MB/s", read, alone),
    ]


def _pace(user: Client, terminal: str, seconds: float) -> float:
    """Measure for `seconds` how fast the terminal's program writes; return the MB/s."""
    began, first = time.perf_counter(), _position(user, terminal)
    time.sleep(seconds)
    taken, last = time.perf_counter() - began, _position(user, terminal)
    return (last - first) / MB / taken


def _position(user: Client, terminal: str) -> int:
    found = user.ask("_acpterm/terminal/get", {"terminalId": terminal})
    return int(found["position"])


@contextlib.contextmanager
def _stopped(daemon: Daemon, viewer: object, terminal: str) -> Iterator[None]:
    """During the block, keep a viewer connected that does not read what the daemon sends.

    `viewer` is a function from the terminal's id to the request of the viewer; None for no viewer.
    """
    if viewer is None:
        yield
        return
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(daemon.socket.replace("agent.sock", "user.sock"))
        sock.sendall(viewer(terminal))
        time.sleep(0.2)
        yield


def _pace_when_read(daemon: Daemon, user: Client, terminal: str, seconds: float) -> float:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(daemon.socket.replace("agent.sock", "user.sock"))
        sock.sendall(_attach(terminal))
        first, began = _position(user, terminal), time.perf_counter()
        while time.perf_counter() - began < seconds:
            sock.recv(1 << 20)
        taken, last = time.perf_counter() - began, _position(user, terminal)
    return (last - first) / MB / taken


def _subscribe(terminal: str) -> bytes:
    del terminal
    return _line("_acpterm/session/subscribe", {"sessionId": SESSION, "token": TOKEN}, 1)


def _attach(terminal: str) -> bytes:
    params = {"terminalId": terminal, "token": TOKEN, "cols": 120, "rows": 40}
    return _line("_acpterm/terminal/attach", params, 1)


def _embedding(terminal: str) -> bytes:
    content = [{"type": "terminal", "terminalId": terminal}]
    call = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "yes", "content": content}
    return _line("session/update", {"sessionId": SESSION, "update": call}, None)


def _line(method: str, params: dict[str, object], id_: int | None) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return msgspec.json.encode(message if id_ is None else {**message, "id": id_}) + b"\n"
