"""Daemons as processes: `daemon`, and `blocking_daemon` for tests that are not async."""

import json
import os
import signal
import socket
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.agent import Agent, agent_at
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll, poll_blocking
from tests.support.processes import Process, environment, process
from tests.support.rpc import encode
from tests.support.starting import start
from tests.support.tmux import COLS, ROWS
from tests.support.user import User, user_at


def user_socket(path: str) -> str:
    """Return the default path of the user's socket beside an agents' socket."""
    return path.replace("agent.sock", "user.sock")


def listens(path: str) -> bool:
    """Return whether a process accepts connections at `path`."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


class Daemon(NamedTuple):
    """A daemon, and the path of its agents' socket."""

    process: Process
    path: str

    @property
    def user_path(self) -> str:
        return user_socket(self.path)

    async def status(self) -> Any:
        """Return the result of `_acpterm/status`, from the first worker that responds."""
        async with user_at(self.user_path) as user:
            return await user.request("status")

    async def kill_worker(self) -> None:
        """Kill the worker, and wait until its process has ended."""
        pid = (await self.status())["workerPid"]
        os.kill(pid, signal.SIGKILL)
        await poll(lambda: not Path(f"/proc/{pid}").exists())

    @asynccontextmanager
    async def agent(self, secret: str | None = None) -> AsyncIterator[tuple[Agent, dict[str, Any]]]:
        """Connect an agent; yield the agent, and `_meta.acpterm` of the result of `initialize`.

        `secret` resumes the lost connection that it belongs to.
        """
        async with agent_at(self.path) as agent:
            yield agent, await agent.initialize(secret)

    @asynccontextmanager
    async def user(self) -> AsyncIterator[User]:
        """Connect a user."""
        async with user_at(self.user_path) as user:
            yield user


@asynccontextmanager
async def daemon(
    directory: Path,
    *arguments: str,
    env: dict[str, str] | None = None,
    settings: dict[str, object] | None = None,
    is_ready: Callable[[str], bool] = listens,
    terminate: bool = False,
    **options: Any,
) -> AsyncIterator[Daemon]:
    """Run `acpterm serve` on sockets in `directory/run`; yield the daemon once it is ready.

    `settings` are added to the daemon's environment; further options are those of `process`. At the
    end of the block the daemon is killed, or if `terminate` is true, shut down.
    """
    if env is None:
        env = environment(XDG_CONFIG_HOME=str(directory / "none"))
    env = env | {f"ACPTERM_{name.upper()}": str(value) for name, value in (settings or {}).items()}
    path = str(directory / "run" / "agent.sock")
    paths = [path, env.get("ACPTERM_USER_SOCKET") or user_socket(path)]
    async with process(
        directory, "serve", "--socket", path, *arguments, env=env, **options
    ) as running:
        # The start is the most work that tests wait for.
        await poll(
            lambda: all(map(is_ready, paths)) or running.process.poll() is not None, 2 * DEADLINE_S
        )
        yield Daemon(running, path)
        if terminate and running.process.poll() is None:
            running.terminate()
            await running.wait()


class BlockingDaemon:
    """A daemon, for tests that are not async: its methods block."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.socket = str(directory / "agent.sock")
        self.env = environment(
            ACPTERM_SOCKET=self.socket,
            HOME=str(directory),
            LC_ALL="C.UTF-8",
            PS1="$ ",
            # An interactive shell ignores SIGTERM.
            ACPTERM_KILL_GRACE="0.3",
            **{"XDG_CONFIG_HOME": str(directory / "none")} | settings,
        )
        for name in "PROMPT_COMMAND", "COLUMNS", "LINES":
            self.env.pop(name, None)
        with (directory / "log").open("wb") as log:
            self.process = start(
                ["serve", "--socket", self.socket],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        try:
            poll_blocking(self._is_ready, 2 * DEADLINE_S)
        except BaseException:
            self.close()
            raise

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, (self.directory / "log").read_text()
        return listens(self.socket) and listens(user_socket(self.socket))

    def close(self) -> None:
        """Shut the daemon and its terminals down."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.wait()

    def clear(self) -> None:
        """Remove all terminals."""
        for info in self.request("terminal/list", all=True)["terminals"]:
            # An agent's terminal may go by itself.
            with suppress(AssertionError):
                self.request("terminal/release", terminalId=info["terminalId"])

    def request(self, method: str, **params: Any) -> Any:
        """Send `_acpterm/METHOD` on a new connection; return its result."""
        context = {"env": self.env, "cwd": str(self.directory)}
        initialize = {"protocolVersion": 1, "_meta": {"acpterm": {"context": context}}}
        response: dict[str, Any] = {}
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE_S)
            connection.connect(user_socket(self.socket))
            stream = connection.makefile("rwb")
            for id_, (name, its_params) in enumerate(
                [("initialize", initialize), (f"_acpterm/{method}", params)]
            ):
                stream.write(encode(id=id_, method=name, params=its_params))
                stream.flush()
                response = json.loads(stream.readline())
                assert "error" not in response, response
        return response["result"]

    def run(self, *words: str) -> str:
        """Run `acpterm` to its end; return what it prints."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with start(list(words), env=self.env, **pipes) as process:
            out, err = process.communicate()
        assert process.returncode == 0, err
        return out.decode()

    def kill_worker(self) -> None:
        """Kill the worker, and wait until its process has ended."""
        pid = self.request("status")["workerPid"]
        os.kill(pid, signal.SIGKILL)
        poll_blocking(lambda: not Path(f"/proc/{pid}").exists())

    def create(self, *command: str, size: tuple[int, int] = (COLS, ROWS), **params: Any) -> str:
        """Create a terminal to which no window is attached; return its name."""
        name = f"t{uuid.uuid4().hex[:8]}"
        cols, rows = size
        params = {"command": command[0], "args": list(command[1:]), **params}
        self.request("terminal/create", name=name, cols=cols, rows=rows, **params)
        return name

    def info(self, name: str) -> Any:
        """Return the description of a terminal."""
        return self.request("terminal/get", terminalId=name)

    def size(self, name: str) -> tuple[int, int]:
        """Return columns and rows of a terminal."""
        info = self.info(name)
        return info["cols"], info["rows"]

    def memory(self) -> int:
        """Return the resident bytes of the keeper."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def blocking_daemon(directory: Path, **settings: str) -> Iterator[BlockingDaemon]:
    """Run a daemon on sockets in `directory`; shut it down at the end of the block."""
    running = BlockingDaemon(directory, **settings)
    try:
        yield running
    finally:
        running.close()
