"""Runs programs in terminals of any provider: local, sandbox, container, or another host."""

import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio
import trio.testing

from acpterm.config.places import SlurmPlace, SshPlace
from acpterm.host.launch.placement import remote_program
from acpterm.providers.provider import Command, Provider
from acpterm.providers.slurm.provider import SlurmProvider
from acpterm.providers.ssh.provider import SshProvider
from acpterm.pty.program import Program
from acpterm.pty.tracking.marks import Daemon
from acpterm.terminal.pool import Pool
from acpterm.terminal.spec import TerminalSpec
from acpterm.terminal.status import EndedBy, ExitStatus
from acpterm.terminal.terminal import Terminal
from tests.support.containers import shell
from tests.support.polling import poll
from tests.support.pools import running_pool


@asynccontextmanager
async def ssh_provider(place: SshPlace, daemon: Daemon | None = None) -> AsyncIterator[SshProvider]:
    """Run a provider of the host `place` during the block."""
    provider = SshProvider("ssh:box", place, daemon)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(provider.run)
        yield provider
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def slurm_provider(
    place: SlurmPlace, daemon: Daemon | None = None
) -> AsyncIterator[SlurmProvider]:
    """Run a provider of the cluster `place` during the block."""
    provider = SlurmProvider("slurm:box", place, daemon)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(provider.run)
        await trio.testing.wait_all_tasks_blocked()
        yield provider
        nursery.cancel_scope.cancel()


class Started(NamedTuple):
    """A terminal, and the token for the clean-up."""

    terminal: Terminal
    token: str | None


async def start(provider: Provider, pool: Pool, command: Command, **spec: Any) -> Started:
    """Start a command of a provider on a terminal; `spec` are fields of `TerminalSpec`."""
    prepared = await provider.prepare(command)
    program = Program(
        prepared.argv, prepared.env, prepared.cwd, 0o22, fallback_argv=prepared.fallback_argv
    )
    spec["remote"] = remote_program(provider, prepared.token)
    return Started(await pool.create(program, TerminalSpec(**spec)), prepared.token)


async def release(provider: Provider, pool: Pool, started: Started) -> None:
    """Release a terminal, and wait until nothing is left of it."""
    pool.release(started.terminal, EndedBy.AGENT)
    await started.terminal.wait_closed()
    if started.token is not None:
        await provider.clean_up(started.token)


async def run(provider: Provider, command: Command, **spec: Any) -> tuple[ExitStatus, str]:
    """Run a command of a provider to its end; return its exit status, and its output.

    `spec` are fields of `TerminalSpec`.
    """
    async with running_pool() as pool:
        started = await start(provider, pool, command, **spec)
        with trio.fail_after(30):
            status = await started.terminal.wait_exited()
        text = started.terminal.text.text()
        await release(provider, pool, started)
    return status, text


async def survive_hangup(ssh: SshProvider, directory: Path) -> None:
    """Assert that a program that handles SIGHUP continues after that signal, and then exits."""
    line = "trap 'echo hung up' HUP; trap 'exit 6' USR1; echo ready; while :; do sleep 0.02; done"
    async with running_pool() as pool:
        started = await start(ssh, pool, shell(directory, line))
        await poll(lambda: "ready" in started.terminal.text.text())
        assert started.token is not None
        program = ssh.program(started.token)
        assert await program.signal(signal.SIGHUP)
        await poll(lambda: "hung up" in started.terminal.text.text())
        # The other host needs some tenths of a second to end the processes of a lost connection.
        with trio.move_on_after(1):
            await started.terminal.wait_exited()
        assert await program.signal(signal.SIGUSR1)
        status = await started.terminal.wait_exited()
        assert (status.code, status.ended_by) == (6, EndedBy.EXITED)
        await release(ssh, pool, started)


async def remove_directory_there(ssh: SshProvider, directory: Path) -> None:
    """Remove the directory in which `ssh` keeps the files of its connection on the host.

    The host is this machine, reached through sshd. It removes that directory itself, but only
    `lost_timeout` seconds later. A program runs in `directory` first, to open the connection.
    """
    assert (await run(ssh, shell(directory, "exit 2")))[0].code == 2
    connections = ssh._connections
    assert connections._control is not None
    await connections._control.request("exit", "id", timeout_s=5)
    shutil.rmtree(connections.run_words.split()[-1])


def pids(path: Path) -> list[int]:
    """Return the pids that a program has written into a file, one a line."""
    return [int(line) for line in path.read_text().split()]
