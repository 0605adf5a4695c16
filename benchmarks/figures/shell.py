"""The overhead per command in a persistent shell, beside the same command in a pipe-fed bash.

The baseline types into the stdin of a bash without a terminal, and reads a line with the exit code
from its stdout. That is less work, but the boundaries are wrong once a command reads its input.
"""

import subprocess
import time
from typing import Self

import anyio

import acpterm
from acpterm.config import Settings
from benchmarks.figure import Figure, compare, p50, p99
from benchmarks.processes import Daemon

_COMMANDS = {":": ":", "true": "/bin/true"}
_MORE_MS = 5
_SHELLS = ("bash", "zsh", "fish")


def measure(*, quick: bool) -> list[Figure]:
    """Measure a builtin in each shell, and a program in bash."""
    rounds, count = (2, 20) if quick else (10, 100)
    with Daemon() as daemon:
        settings = Settings(socket=daemon.socket)
        return anyio.run(_measure, settings, rounds, count, backend="trio")


async def _measure(settings: Settings, rounds: int, count: int) -> list[Figure]:
    cases = [(kind, ":") for kind in _SHELLS] + [("bash", "true")]
    taken: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    pipes: dict[str, list[float]] = {name: [] for name in _COMMANDS}
    async with acpterm.connect(settings=settings) as client:
        with _PipeShell() as pipe:
            for name, command in _COMMANDS.items():
                pipe.run(command)
                for _ in range(rounds):
                    pipes[name] += [pipe.run(command) for _ in range(count)]
        for kind, name in cases:
            async with client.shell(kind, user_rc=False) as shell:
                await shell.run(_COMMANDS[name])
                for _ in range(rounds * count):
                    before = time.perf_counter()
                    done = await shell.run(_COMMANDS[name])
                    taken[kind, name].append(1000 * (time.perf_counter() - before))
                    if (done.exit_code, done.boundary) != (0, "exact"):
                        raise RuntimeError(f"{kind}: {done}")
    return [
        compare(
            f"`{name}` in a persistent {kind}, p50 (baseline: in a pipe-fed bash)", "ms",
            p50(values), p50(pipes[name]), more=_MORE_MS, p99=p99(values),
        )
        for (kind, name), values in taken.items()
    ]  # fmt: skip


class _PipeShell:
    """A bash that reads commands from a pipe."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            ["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.stdin.close()

    def run(self, command: str) -> float:
        """Run a command; return the milliseconds until its exit code has arrived."""
        before = time.perf_counter()
        self._process.stdin.write(f"{command}\necho $?\n".encode())
        if self._process.stdout.readline() != b"0\n":
            raise RuntimeError(f"{command} failed")
        return 1000 * (time.perf_counter() - before)
