"""A daemon whose workers are killed, and agents that come back to it."""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests.support.agent import Agent
from tests.support.hosts import Process, agent_at, daemon, environment, poll
from tests.support.person import Person, person_at


class Daemon:
    """A daemon, and the paths of its sockets."""

    def __init__(self, process: Process, path: str) -> None:
        self.process = process
        self.path = path
        self.user_path = path.replace("agent.sock", "user.sock")

    async def status(self) -> Any:
        """Return `_acpterm/status`, of whichever worker answers first."""
        async with person_at(self.user_path) as person:
            return await person.request("status")

    async def kill_worker(self) -> None:
        """Kill the worker, and wait until it is gone."""
        pid = (await self.status())["workerPid"]
        os.kill(pid, signal.SIGKILL)
        await poll(lambda: not Path(f"/proc/{pid}").exists())

    @asynccontextmanager
    async def agent(self, secret: str | None = None) -> AsyncIterator[tuple[Agent, dict[str, Any]]]:
        """Connect an agent, which resumes the connection of `secret`: its `_meta.acpterm`."""
        async with agent_at(self.path) as agent:
            yield agent, await initialize(agent, secret)

    @asynccontextmanager
    async def user(self) -> AsyncIterator[Person]:
        """Connect a front end of the user's."""
        async with person_at(self.user_path) as person:
            yield person


async def initialize(agent: Agent, secret: str | None = None) -> Any:
    """Send `initialize`; return `_meta.acpterm` of the result."""
    params: dict[str, Any] = {
        "protocolVersion": 1,
        "clientInfo": {"name": "tester", "version": "1"},
    }
    if secret is not None:
        params["_meta"] = {"acpterm": {"resume": secret}}
    return (await agent.request("initialize", params))["_meta"]["acpterm"]


async def repeat(agent: Agent, id_: int, method: str, params: dict[str, Any]) -> Any:
    """Send a request with the id that it had before: its result."""
    agent._methods[id_], agent._waiting[id_] = method, trio.Event()
    agent._next = max(agent._next, id_)
    body = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
    await agent.send(json.dumps(body).encode() + b"\n")
    return await agent.answer(id_)


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
