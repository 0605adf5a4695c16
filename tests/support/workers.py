"""A daemon whose workers are killed, and agents that come back to it."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.agent import Agent
from tests.support.hosts import Process, agent_at, daemon, environment
from tests.support.polling import poll
from tests.support.user import User, user_at


class Daemon:
    """A daemon, and the paths of its sockets."""

    def __init__(self, process: Process, path: str) -> None:
        self.process = process
        self.path = path
        self.user_path = path.replace("agent.sock", "user.sock")

    async def status(self) -> Any:
        """Return `_acpterm/status`, of whichever worker answers first."""
        async with user_at(self.user_path) as user:
            return await user.request("status")

    async def kill_worker(self) -> None:
        """Kill the worker, and wait until it is gone."""
        pid = (await self.status())["workerPid"]
        os.kill(pid, signal.SIGKILL)
        await poll(lambda: not Path(f"/proc/{pid}").exists())

    @asynccontextmanager
    async def agent(self, secret: str | None = None) -> AsyncIterator[tuple[Agent, dict[str, Any]]]:
        """Connect an agent, which resumes the connection of `secret`: its `_meta.acpterm`."""
        async with agent_at(self.path) as agent:
            yield agent, await agent.initialize(secret)

    @asynccontextmanager
    async def user(self) -> AsyncIterator[User]:
        """Connect a user."""
        async with user_at(self.user_path) as user:
            yield user


@asynccontextmanager
async def daemon_of(
    tmp_path: Path, *arguments: str, variables: dict[str, str] | None = None, **settings: object
) -> AsyncIterator[Daemon]:
    """Run a daemon with settings, and more variables in its environment."""
    env = environment(
        XDG_CONFIG_HOME=str(tmp_path / "none"),
        **(variables or {}),
        **{f"ACPTERM_{name.upper()}": str(value) for name, value in settings.items()},
    )
    async with daemon(tmp_path, *arguments, env=env) as (process, path):
        yield Daemon(process, path)
        if process.process.poll() is None:
            process.terminate()
            await process.wait()
