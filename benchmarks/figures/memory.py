"""The memory of a terminal: idle, with a full screen, and with a full text buffer.

The memory of the daemon is that of keeper and worker together, each page counted once.
"""

import sys
import time

from benchmarks.client import Client
from benchmarks.figure import Figure, below, unavailable
from benchmarks.processes import Daemon, lines, resident_memory

_SCREEN = (
    "import sys, time\n"
    "w = sys.stdout.write\n"
    "w(sys.argv[1])\n"
    "for row in range(40):\n"
    "    cells = ''.join(chr(33 + (row + i) % 90) for i in range(120))\n"
    "    w(f'\\x1b[{row + 1};1H\\x1b[3{row % 8}m{cells}')\n"
    "w('\\x1b[1;1Hready')\n"
    "sys.stdout.flush()\n"
    "time.sleep(1000)\n"
)
_CALM_S = 2.5
_ALTERNATE_SCREEN = "\x1b[?1049h"


def measure(*, quick: bool) -> list[Figure]:
    count = 20 if quick else 50
    idle = _idle(100 if quick else 500)
    assert idle.value is not None
    return [
        _keeper(),
        idle,
        _screen("a full screen of 120x40", "", count, idle.value),
        _screen("a full alternate screen of 120x40", _ALTERNATE_SCREEN, count, idle.value),
        _full(5 if quick else 20),
    ]


def _keeper() -> Figure:
    name = "resident memory of the keeper"
    with Daemon() as daemon:
        _warm_up(daemon.client())
        if len(daemon.pids()) < 2:
            return unavailable(name, "MiB", "at most 16 MiB", "this version has no keeper")
        return below(name, "MiB", resident_memory(daemon.pid), 16)


def _idle(count: int) -> Figure:
    with Daemon() as daemon:
        client = daemon.client()
        _warm_up(client)
        before = daemon.memory()
        for _ in range(count):
            client.create("/bin/sleep", "1000")
        after = daemon.memory()
    each = {name: (after[name] - before[name]) / count for name in before}
    name = f"memory of an idle terminal, of {count}"
    return below(name, "KiB", each["own"], 24, rss=each["rss"])


def _screen(what: str, prefix: str, count: int, idle: float) -> Figure:
    with Daemon(cols="120") as daemon:
        client = daemon.client()
        _warm_up(client)
        before = daemon.memory()
        argv = (sys.executable, "-I", "-S", "-c", _SCREEN, prefix)
        terminals = [client.create(*argv) for _ in range(count)]
        for terminal in terminals:
            client.until_output(terminal, "ready")
        after = daemon.memory()
    each = {name: (after[name] - before[name]) / count for name in before}
    name = f"more memory with {what}, of {count}"
    return below(name, "KiB", each["own"] - idle, 200, rss=each["rss"])


def _full(count: int) -> Figure:
    with lines(3 << 20) as file, Daemon() as daemon:
        client = daemon.client()
        _warm_up(client)
        before = daemon.memory()
        terminals = [client.create("/bin/cat", file) for _ in range(count)]
        for terminal in terminals:
            client.wait(terminal)
        # The daemon returns the memory that a flood has used soon after the flood.
        time.sleep(_CALM_S)
        after = daemon.memory()
        for terminal in terminals:
            client.output(terminal)
        polled = daemon.memory()
    each = {name: (after[name] - before[name]) / count / 1024 for name in before}
    read = (polled["own"] - before["own"]) / count / 1024
    name = f"memory of a terminal with 1 MiB of text, of {count}"
    return below(name, "MiB", each["own"], 2.5, rss=each["rss"], after_output=read)


def _warm_up(client: Client) -> None:
    for _ in range(5):
        terminal = client.create("/bin/echo", "warm")
        client.wait(terminal)
        client.output(terminal)
        client.release(terminal)
