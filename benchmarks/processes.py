"""Starts the measured processes: the daemon, the baselines, and a poller."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ptyprocess

from benchmarks.client import Client

_HERE = Path(__file__).parent
_START_TIMEOUT_S = 20


class Server:
    """A process that serves a Unix socket in a private temporary directory, during a block.

    `arguments` are those of `python -m`, before the path of the socket; `env` is added to the
    environment, from which the variables of acpterm are removed. Raises `RuntimeError` if the
    process does not listen within `_START_TIMEOUT_S`.
    """

    def __init__(self, *arguments: str, **env: str) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="acpterm-bench-")
        self.socket = f"{self.directory.name}/run/agent.sock"
        os.mkdir(os.path.dirname(self.socket), 0o700)
        self._log = Path(self.directory.name, "log")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ACPTERM_")}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments, self.socket],
                env=inherited
                | {f"XDG_{kind}_HOME": self.directory.name for kind in ("CONFIG", "STATE")}
                | env,
                cwd=_HERE.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                # Daemons are started so; it matters because Linux schedules processes by session.
                start_new_session=True,
            )
        self.pid = self._process.pid
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server does not listen:\n{self._log.read_text()}")
            time.sleep(0.01)

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.socket) == 0

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
        self.directory.cleanup()

    def client(self, resume: str | None = None, **own: Any) -> Client:
        """Connect a client; `resume` and `own` are as for `Client`."""
        return Client(self.socket, resume, own)

    def pids(self) -> list[int]:
        """Return the pids of the processes that the server consists of."""
        return [self.pid]

    def memory(self) -> dict[str, float]:
        """Return the server's memory in KiB: `own`, and `rss`, the sum of resident memory.

        Own memory is anonymous and shared memory (the rings), each page counted once. Pages of
        files, such as libraries, are left out: other processes share them.
        """
        sums = {"own": 0.0, "rss": 0.0}
        for pid in self.pids():
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            sizes = {
                name: float(size)
                for name, size in re.findall(r"^(\w+): +(\d+) kB", rollup, re.MULTILINE)
            }
            sums["own"] += sizes["Pss_Anon"] + sizes["Pss_Shmem"]
            sums["rss"] += sizes["Rss"]
        return sums

    def cpu(self) -> float:
        """Return the processor time that the server has used, in seconds."""
        return sum(map(cpu_time, self.pids()))


class Daemon(Server):
    """A running `acpterm serve`, with default settings unless the environment has others."""

    def __init__(self, **settings: str) -> None:
        env = {f"ACPTERM_{name.upper()}": value for name, value in settings.items()}
        super().__init__("acpterm", "serve", "--socket", **env)
        self.user_socket = self.socket.replace("agent.sock", "user.sock")
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not os.path.exists(self.user_socket) and time.monotonic() < deadline:
            time.sleep(0.01)

    def status(self) -> dict[str, Any]:
        """Return the result of `_acpterm/status`."""
        client = Client(self.user_socket)
        try:
            status: dict[str, Any] = client.ask("_acpterm/status", {})
            return status
        finally:
            client.close()

    def worker(self) -> int | None:
        """Return the worker's pid; None with a version that has no worker."""
        pid = self.status().get("workerPid")
        return None if pid is None else int(pid)

    def pids(self) -> list[int]:
        """Return the pids of keeper and worker."""
        worker = self.worker()
        return [self.pid] if worker is None or worker == self.pid else [self.pid, worker]

    def kill_worker(self) -> None:
        """Kill the worker by SIGKILL."""
        worker = self.worker()
        assert worker is not None
        os.kill(worker, signal.SIGKILL)


class PlainServer(Server):
    """A running `plain_server.py`."""

    def __init__(self) -> None:
        super().__init__("benchmarks.plain_server")


class Bare:
    """Runs `bare.py` during a block, in a process that has no other modules loaded."""

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
        """Call the function `what` of `bare.py` `count` times for the program `argv`.

        Return the milliseconds of each call.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, count, *argv, sep="\t", file=self._process.stdin, flush=True)
        return [int(nanoseconds) / 1e6 for nanoseconds in self._process.stdout.readline().split()]


@contextlib.contextmanager
def encoder(file: str) -> Iterator[socket.socket]:
    """Run `encode.py`; yield a socket, on which each byte gets the encoded file as response."""
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
    """Poll a quiet terminal of the server at `path` every 5 ms, in a separate process.

    Yield a list. At the end of the block it is filled with the milliseconds until each response.
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
        taken += json.loads(printed)


@contextlib.contextmanager
def lines(size: int, *, coloured: bool = False) -> Iterator[str]:
    """Yield the path of a file of lines of 80 cells, of at most `size` bytes.

    A coloured line has five SGR sequences, as the output of compilers and of `ls --color` has.
    """
    with tempfile.NamedTemporaryFile(prefix="acpterm-bench-") as file:
        block = "".join(map(_coloured if coloured else _plain, range(8192))).encode()
        line = len(block) // 8192
        left = size - size % line
        while left > 0:
            file.write(block[:left])
            left -= len(block)
        file.flush()
        yield file.name


_LETTERS = "".join(chr(33 + i % 90) for i in range(70))


def _plain(number: int) -> str:
    return f"{number:09d} {_LETTERS}\n"


def _coloured(number: int) -> str:
    left, right = _LETTERS[:30], _LETTERS[30:]
    colour = 16 + number % 200
    return f"\x1b[1;32m{number:09d}\x1b[0m \x1b[38;5;{colour:03d}m{left}\x1b[4;33m{right}\x1b[0m\n"


def resident_memory(pid: int) -> float:
    """Return the resident memory of a process in MiB, including its libraries."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def cpu_time(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
