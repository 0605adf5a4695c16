"""The latency that `acpterm proxy` adds to a message, and whether its memory grows."""

import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure, below, compare, p50, p99, report

_UPDATES = [sys.executable, "-I", "-S", str(Path(__file__).parent.parent / "updates.py")]
_INITIALIZE = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
_MESSAGE = (
    b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate"'
    b':"agent_message_chunk","content":{"type":"text","text":"some words of a message"}}}}\n'
)


def measure(*, quick: bool) -> list[Figure]:
    return [*_latency(rounds=3 if quick else 20), *_updates(2_000 if quick else 100_000)]


def _latency(rounds: int) -> list[Figure]:
    """Measure the time until `cat` echoes a message: as the agent of a proxy, and directly."""
    direct: list[float] = []
    through: list[float] = []
    with _program("cat") as bare, _program(*_proxy("cat")) as proxy:
        # The first message is the editor's `initialize`, which the proxy parses.
        _ask(proxy, _INITIALIZE)
        for _ in range(rounds):
            direct += [_ask(bare, _MESSAGE) for _ in range(50)]
            through += [_ask(proxy, _MESSAGE) for _ in range(50)]
    there_and_back = [value * 1000 for value in through], [value * 1000 for value in direct]
    name = "a message through the proxy and back, p50"
    ours, theirs = there_and_back
    return [
        compare(name, "ms", p50(ours), p50(theirs), more=1),
        report(name.replace("p50", "p99"), "ms", p99(ours), p99(theirs)),
    ]


def _updates(count: int) -> list[Figure]:
    """Measure the rate of `count` updates from an agent, and the growth of the proxy's memory."""
    with _program(*_UPDATES, str(count)) as bare:
        direct = _rate(bare, count)[0]
    with _program(*_proxy(*_UPDATES, str(count))) as proxy:
        rate, sizes = _rate(proxy, count)
    tenth = len(sizes) // 10
    grown = statistics.median(sizes[-tenth:]) - statistics.median(sizes[2 * tenth : 3 * tenth])
    return [
        report(f"{count} updates through the proxy", "1/s", rate, direct),
        below("what the proxy grows by meanwhile, after two tenths", "KiB", grown, 1024),
    ]


def _rate(process: subprocess.Popen[bytes], count: int) -> tuple[float, list[int]]:
    """Read `count` updates; return their number per second, and samples of the memory in KiB.

    The memory is that of `process`, sampled at regular intervals during the updates.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_INITIALIZE)
    process.stdin.flush()
    process.stdout.readline()
    begin = time.perf_counter()
    sizes = []
    for number in range(count):
        line = process.stdout.readline()
        assert line.startswith(b'{"jsonrpc"'), line
        if number % max(1, count // 100) == 0:
            sizes.append(_memory(process.pid))
    return count / (time.perf_counter() - begin), sizes


def _ask(process: subprocess.Popen[bytes], message: bytes) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    begin = time.perf_counter()
    process.stdin.write(message)
    process.stdin.flush()
    process.stdout.readline()
    return time.perf_counter() - begin


def _proxy(*agent: str) -> list[str]:
    return [sys.executable, "-m", "acpterm", "proxy", "--embedded", "--", *agent]


@contextlib.contextmanager
def _program(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACPTERM_")}
    with tempfile.TemporaryDirectory(prefix="acpterm-bench-") as directory:
        process = subprocess.Popen(
            argv,
            env=env | {"XDG_CONFIG_HOME": directory, "ACPTERM_LOG_LEVEL": "error"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(20)


def _memory(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Rss: +(\d+) kB", rollup, re.MULTILINE)
    return int(found[1]) if found else 0
