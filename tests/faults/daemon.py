"""A daemon for fault tests: its processes, injected faults, and checks that nothing is left."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from tests.faults.wire import user_request

ACPTERM = [sys.executable, "-m", "acpterm"]
_INJECTED = Path(__file__).with_name("injected")
_ROOT = Path(__file__).parent.parent.parent
_POLL_S = 0.002


class Daemon:
    """An `acpterm serve` process, with a directory for injected faults."""

    def __init__(
        self, directory: Path, *wrapper: str, run: Path | None = None, **settings: str
    ) -> None:
        self.directory = directory
        self.faults = directory / "faults"
        self.faults.mkdir()
        run = directory / "run" if run is None else run
        run.mkdir(mode=0o700, exist_ok=True)
        self.socket = str(run / "agent.sock")
        self.user_socket = str(run / "user.sock")
        self.log = directory / "daemon.log"
        self.env = environment(
            directory, **{f"ACPTERM_{name.upper()}": value for name, value in settings.items()}
        )
        self.wrapper = wrapper
        self.process: subprocess.Popen[bytes] | None = None
        self.pids: set[int] = set()
        """The pids of all processes of the daemon itself that were observed so far."""

    @property
    def pid(self) -> int:
        """The keeper's pid."""
        assert self.process is not None
        return self.process.pid

    async def start(self, env: dict[str, str], pass_fds: Sequence[int]) -> None:
        """Start the daemon, and wait until it responds."""
        faulty = {"FAULTS_DIR": str(self.faults), "PYTHONPATH": f"{_INJECTED}:{_ROOT}"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.wrapper, *ACPTERM, "serve", "--socket", self.socket],
                env=self.env | faulty | env,
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        try:
            status = await self.status()
        except TimeoutError:
            raise RuntimeError(f"the daemon does not answer:\n{self.logged()}") from None
        self.pids |= {self.pid, status.get("workerPid", self.pid)}

    async def status(self, timeout_s: float = 20) -> dict[str, Any]:
        """Return the response of the present worker to `_acpterm/status`."""
        status: dict[str, Any] = await user_request(self.user_socket, "status", timeout_s)
        self.pids.add(status.get("workerPid", self.pid))
        return status

    async def worker(self) -> int:
        """Return the pid of the worker that responds to requests."""
        return int((await self.status())["workerPid"])

    async def terminals(self) -> list[dict[str, Any]]:
        """Return all terminals, as the user's API describes them."""
        listed = await user_request(self.user_socket, "terminal/list", all=True)
        return list(listed["terminals"])

    async def info(self, terminal: str) -> dict[str, Any]:
        """Return one terminal, as the user's API describes it."""
        found: dict[str, Any] = await user_request(
            self.user_socket, "terminal/get", terminalId=terminal
        )
        return found

    def inject(self, fault: str, argument: object = "") -> None:
        """Inject a fault; see injected/sitecustomize.py."""
        temporary = self.faults / f".{fault}"
        temporary.write_text(str(argument))
        temporary.rename(self.faults / fault)

    def heal(self, fault: str) -> None:
        """Remove a fault that always happens, or that has not happened yet."""
        (self.faults / fault).unlink(missing_ok=True)

    def happened(self, fault: str) -> bool:
        """Return whether a fault that was injected once has happened."""
        return not (self.faults / fault).exists()

    async def successor(self, before: set[int]) -> int:
        """Wait for a worker process that is not in `before`; return its pid."""
        found = await until(
            lambda: next(iter(self._workers() - before), None), 10, "no worker was started"
        )
        self.pids.add(found)
        return int(found)

    def _workers(self) -> set[int]:
        """Return the keeper's children that are workers."""
        return {pid for pid in children(self.pid) if _is_worker(pid)}

    def logged(self) -> str:
        """Return the daemon's log."""
        return self.log.read_text(errors="replace")

    async def end(self) -> int:
        """Shut the daemon down; return its exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        process = self.process
        return int(await until(process.poll, 15, "the daemon does not end"))

    async def check_nothing_left(self, *programs: int) -> None:
        """Raise AssertionError if a process of the daemon or one of `programs` remains."""
        pids = self.pids | set(programs)
        await until(lambda: not any(map(alive, pids)), 10, lambda: f"left: {described(pids)}")

    def kill_all(self) -> None:
        """Kill all remaining processes, so that a failed test leaves none."""
        assert self.process is not None
        for pid in self._workers() | self.pids:
            if pid == self.pid or _is_worker(pid):
                _kill(pid, signal.SIGCONT)
                _kill(pid, signal.SIGKILL)
        self.process.wait()


@asynccontextmanager
async def daemon(
    directory: Path,
    *wrapper: str,
    run: Path | None = None,
    env: dict[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    **settings: str,
) -> AsyncIterator[Daemon]:
    """Run a daemon; kill its remaining processes at the end of the block.

    `wrapper` is put in front of its argv; `run` is the directory of its sockets.
    """
    running = Daemon(directory, *wrapper, run=run, **settings)
    try:
        await running.start(env or {}, pass_fds)
        yield running
    except BaseException:
        sys.stderr.write(running.logged()[-8000:])
        raise
    finally:
        if running.process is not None:
            running.kill_all()


def environment(directory: Path, **settings: str) -> dict[str, str]:
    """Return this environment without acpterm's settings, but with `settings`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACPTERM_")}
    for name in ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"):
        env.pop(name, None)
    home = {"HOME": str(directory), "XDG_CONFIG_HOME": str(directory / "none")}
    return env | home | {"XDG_STATE_HOME": str(directory / "state"), "LC_ALL": "C.UTF-8"} | settings


async def until(
    check: Callable[[], Any], timeout_s: float, failure: str | Callable[[], str]
) -> Any:
    """Poll until `check` returns a value other than None and False; return that."""
    deadline = trio.current_time() + timeout_s
    while (found := check()) is None or found is False:
        if trio.current_time() > deadline:
            raise AssertionError(failure() if callable(failure) else failure)
        await trio.sleep(_POLL_S)
    return found


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    return state(pid) not in ("", "Z", "X")


def state(pid: int) -> str:
    """Return the letter of a process's state; empty if there is no such process."""
    return _stat(pid, 0)


def started(pid: int) -> str:
    """Return a process's start time in clock ticks; empty if there is no such process.

    Together with the pid it is unique.
    """
    return _stat(pid, 19)


def _stat(pid: int, field: int) -> str:
    """Return a field of /proc/PID/stat, counted from the one after the program's name."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[field]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children(pid: int) -> list[int]:
    """Return the pids of a process's children."""
    try:
        return [int(pid) for pid in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def command_line(pid: int) -> list[str]:
    """Return a process's argv; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _is_worker(pid: int) -> bool:
    """Return whether a process is `acpterm serve`; a keeper, whose argv also has that, is not."""
    argv = command_line(pid)
    return "serve" in argv and not any("keeper" in os.path.dirname(word) for word in argv)


def described(pids: set[int]) -> dict[int, tuple[str, list[str]]]:
    """Return state and argv of those processes that are alive."""
    return {pid: (state(pid), command_line(pid)) for pid in pids if alive(pid)}


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
