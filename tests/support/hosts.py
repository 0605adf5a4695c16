"""Hosts for tests: in this process, or as a process of their own."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from acpterm.config import Settings
from acpterm.host.host import Host
from acpterm.host.open_host import open_host
from acpterm.runtime.exec_context import current
from tests.support import starting
from tests.support.agent import Agent, agent_on
from tests.support.connector import connect_as_agent
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.starting import start

ACPTERM = starting.ACPTERM


@asynccontextmanager
async def host_here(**settings: Any) -> AsyncIterator[Host]:
    """Run a host in this process."""
    async with open_host(Settings(**settings), current()) as host:
        yield host


@asynccontextmanager
async def agent_of(host: Host, session: str = "session-1") -> AsyncIterator[Agent]:
    """Connect an agent to a host in this process, over a socket pair."""
    ours, theirs = trio.socket.socketpair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.serve, trio.SocketStream(theirs), host.context)
        async with agent_on(trio.SocketStream(ours), session) as agent:
            yield agent


@asynccontextmanager
async def agent_here(**settings: Any) -> AsyncIterator[Agent]:
    """Run a host in this process, with one agent."""
    async with host_here(**settings) as host, agent_of(host) as agent:
        yield agent


class Process:
    """A host in a process of its own, ended with the block."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self.log = log

    async def wait(self, seconds: float = DEADLINE_S) -> int:
        """Wait for its end: the exit status."""
        return int(await poll(self.process.poll, seconds))

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def logged(self) -> str:
        return self.log.read_text()


def environment(**more: str) -> dict[str, str]:
    """Make an environment for a host: this one's, with no settings in it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACPTERM_")}
    return env | more


@asynccontextmanager
async def process(
    tmp_path: Path, *arguments: str, env: dict[str, str] | None = None, **more: Any
) -> AsyncIterator[Process]:
    """Run `acpterm` with arguments; kill it at the end if it still runs."""
    log = tmp_path / f"stderr-{os.urandom(4).hex()}"
    with log.open("wb") as stderr:
        popen = start(
            list(arguments),
            stderr=stderr,
            env=environment(XDG_CONFIG_HOME=str(tmp_path / "none")) if env is None else env,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **more},
        )
    try:
        yield Process(popen, log)
    finally:
        if popen.poll() is None:
            popen.kill()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(popen.wait)


@asynccontextmanager
async def daemon(
    tmp_path: Path, *arguments: str, **more: Any
) -> AsyncIterator[tuple[Process, str]]:
    """Run `acpterm serve` on a socket: the process, and the path, once it listens."""
    path = str(tmp_path / "run" / "agent.sock")
    async with process(tmp_path, "serve", "--socket", path, *arguments, **more) as running:
        elsewhere = (more.get("env") or {}).get("ACPTERM_USER_SOCKET")
        user = elsewhere or path.replace("agent.sock", "user.sock")
        await poll(lambda: (listens(path) and listens(user)) or running.process.poll() is not None)
        yield running, path


def listens(path: str) -> bool:
    """Whether somebody takes connections at `path`."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


@asynccontextmanager
async def agent_at(path: str, session: str = "session-1") -> AsyncIterator[Agent]:
    """Connect an agent to a daemon's socket."""
    async with agent_on(await connect_as_agent(path), session) as agent:
        yield agent


@asynccontextmanager
async def agent_on_stdio(
    tmp_path: Path,
    *arguments: str,
    embedded: bool = True,
    below_shell: bool = False,
    **more: Any,
) -> AsyncIterator[tuple[Process, Agent]]:
    """Spawn `acpterm stdio` as an agent does, over pipes.

    Not `embedded`, it uses a daemon: name a `--socket` then, whose daemon the test ends. With
    `below_shell` a shell is the agent to the daemon, and not the tests' process: see `connector`.
    """
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    words = ["stdio", *(["--embedded"] if embedded else []), *arguments]
    run = _below_shell if below_shell else process
    running_stdio = run(tmp_path, *words, **pipes, **more)
    async with running_stdio as running:
        assert running.process.stdin is not None
        assert running.process.stdout is not None
        stream = trio.StapledStream(
            trio.lowlevel.FdStream(os.dup(running.process.stdin.fileno())),
            trio.lowlevel.FdStream(os.dup(running.process.stdout.fileno())),
        )
        running.process.stdin.close()
        running.process.stdout.close()
        async with agent_on(stream) as agent:
            yield running, agent


@asynccontextmanager
async def _below_shell(
    tmp_path: Path, *arguments: str, env: dict[str, str], **more: Any
) -> AsyncIterator[Process]:
    """Run `acpterm` with arguments as the child of a shell, which is killed at the end."""
    log = tmp_path / f"stderr-{os.urandom(4).hex()}"
    # In a file: `sh -c` is not taken for an agent, but for what starts one.
    script = tmp_path / "agent.sh"
    script.write_text('"$@"; exit $?\n')
    shell = ["/bin/sh", str(script), *ACPTERM, *arguments]
    with log.open("wb") as stderr:
        popen = subprocess.Popen(shell, stderr=stderr, env=env, **more)
    try:
        yield Process(popen, log)
    finally:
        popen.kill()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(popen.wait)


async def left_by_killed(code: str) -> int:
    """Run Python that prints a pid and then kills itself: that pid."""
    done = await trio.run_process(
        [sys.executable, "-c", code], capture_stdout=True, check=False, cwd=os.getcwd()
    )
    return int(done.stdout)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
