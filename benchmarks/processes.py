"""The processes that are measured: the daemon, the baselines' bare one, and a poller."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import ptyprocess

_HERE = Path(__file__).parent


class Daemon:
    """`acpterm serve` with default settings, on a socket of its own, for as long as a block."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="acpterm-bench-")
        self.socket = f"{self._folder.name}/run/agent.sock"
        self._log = Path(self._folder.name, "log")
        env = {name: value for name, value in os.environ.items() if not name.startswith("ACPTERM_")}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "acpterm", "serve", "--socket", self.socket],
                env=env | {"XDG_CONFIG_HOME": self._folder.name},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        deadline = time.monotonic() + 20
        while not os.path.exists(self.socket):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the daemon does not listen:\n{self._log.read_text()}")
            time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if error is not None:
            sys.stderr.write(self._log.read_text())
        self._folder.cleanup()

    def memory(self) -> dict[str, int]:
        """Give the daemon's own resident memory, in KiB: `Rss`, `Pss` (smaps_rollup)."""
        rollup = Path(f"/proc/{self._process.pid}/smaps_rollup").read_text()
        return {
            name: int(size)
            for name, size in re.findall(r"^(Rss|Pss): +(\d+) kB", rollup, re.MULTILINE)
        }

    def cpu(self) -> float:
        """Give the processor time that the daemon has used, in seconds."""
        line = Path(f"/proc/{self._process.pid}/stat").read_text()
        fields = line[line.rindex(")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bare:
    """`bare.py` in a fresh process that has nothing else loaded, for as long as a block."""

    def __enter__(self) -> Self:
        library = Path(ptyprocess.__file__).parent.parent
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_HERE / "bare.py"), str(library)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def __call__(self, what: str, count: int, *argv: str) -> list[float]:
        """Have it do `what` (a function of `bare.py`) `count` times: the milliseconds of each."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, count, *argv, sep="\t", file=self._process.stdin, flush=True)
        return [int(nanoseconds) / 1e6 for nanoseconds in self._process.stdout.readline().split()]


@contextlib.contextmanager
def encoder(file: str) -> Iterator[socket.socket]:
    """Run `encode.py` at the other end of a socket: it answers each byte with the encoded file."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, str(_HERE / "encode.py"), str(theirs.fileno()), file],
                pass_fds=(theirs.fileno(),),
            )
        yield ours
    process.wait()


@contextlib.contextmanager
def poller(path: str) -> Iterator[list[float]]:
    """Poll a quiet terminal of the daemon at `path`, every 5 ms, from a process of its own.

    What it gives is filled at the end of the block: milliseconds until each answer.
    """
    taken: list[float] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.poll", path],
        cwd=_HERE.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield taken
    finally:
        printed, _ = process.communicate()
        taken += map(float, printed.split())


@contextlib.contextmanager
def lines(size: int) -> Iterator[str]:
    """Give a file of lines of 80 characters, `size` bytes or a line less."""
    with tempfile.NamedTemporaryFile(prefix="acpterm-bench-") as file:
        line = "".join(chr(33 + i % 90) for i in range(70))
        block = "".join(f"{number:09d} {line}\n" for number in range(8192)).encode()
        left = size - size % 81
        while left > 0:
            file.write(block[:left])
            left -= len(block)
        file.flush()
        yield file.name
