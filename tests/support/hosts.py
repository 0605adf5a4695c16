"""Runs hosts in this process, or behind `acpterm stdio`, and connects agents to them."""

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from acpterm.config import Settings
from acpterm.host.host import Host
from acpterm.host.open_host import open_host
from acpterm.runtime.exec_context import current
from tests.support.agent import Agent, agent_of, agent_on
from tests.support.processes import Process, process


@asynccontextmanager
async def host_here(**settings: Any) -> AsyncIterator[Host]:
    """Run a host in this process."""
    async with open_host(Settings(**settings), current()) as host:
        yield host


@asynccontextmanager
async def agent_here(**settings: Any) -> AsyncIterator[Agent]:
    """Run a host in this process, and connect an agent."""
    async with host_here(**settings) as host, agent_of(host) as agent:
        yield agent


@asynccontextmanager
async def agent_on_stdio(
    tmp_path: Path,
    *arguments: str,
    embedded: bool = True,
    below_shell: bool = False,
    **more: Any,
) -> AsyncIterator[tuple[Process, Agent]]:
    """Start `acpterm stdio` with pipes, and connect an agent to it.

    Yield the process and the agent. Unless it is `embedded`, the arguments or the environment
    select a daemon, which the caller ends. With `below_shell` a shell, instead of this process, is
    the agent to the daemon: see `connector`.
    """
    words = ["stdio", *(["--embedded"] if embedded else []), *arguments]
    if below_shell:
        # In a file, because the daemon treats `sh -c` as a wrapper that starts an agent.
        script = tmp_path / "agent.sh"
        script.write_text('"$@"; exit $?\n')
        more["prefix"] = ["/bin/sh", str(script)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    async with process(tmp_path, *words, **pipes, **more) as running:
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
