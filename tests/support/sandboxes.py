"""Runs programs with the providers, in terminals of a real pool, for the escape tests.

The directories are not below /tmp, which the sandboxes hide as a whole.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from acpterm.providers.provider import Command, Prepared, Provider
from acpterm.pty.program import Program
from acpterm.terminal.pool import Pool
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal
from tests.support.pools import running_pool

_BASES = ("/srv", "/opt", str(Path.home()))


class Place(NamedTuple):
    """Directories for a test: a home directory with a workspace in it, and one outside of both.

    `root` contains all of them.
    """

    root: Path
    home: Path
    workspace: Path
    outside: Path

    def command(self, *argv: str, **more: Any) -> Command:
        """Return a command for a provider; `more` are fields of `Command`."""
        env = {"HOME": str(self.home), "PATH": os.environ["PATH"], **more.pop("env", {})}
        workspace = str(self.workspace)
        fields: dict[str, Any] = {
            "fallback_argv": None,
            "env": env,
            "cwd": workspace,
            "workspace": workspace,
            "shell": "/bin/sh",
            **more,
        }
        return Command(argv, **fields)


@contextmanager
def place(*, repository: bool = True) -> Iterator[Place]:
    """Create the directories for a test, and remove them at the end of the block."""
    base = next(path for path in _BASES if os.access(path, os.W_OK))
    with (Path(tempfile.gettempdir()) / f"acpterm-sandboxes-{os.getuid()}.lock").open("w") as lock:
        # bwrap hides the sockets of all processes, and fails if one of them is removed meanwhile.
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _place(base, repository=repository) as found:
            yield found


@contextmanager
def _place(base: str, *, repository: bool) -> Iterator[Place]:
    root = Path(tempfile.mkdtemp(prefix="acpterm-tests-", dir=base))
    try:
        found = Place(root, root / "home", root / "home" / "project", root / "outside")
        (found.home / ".ssh").mkdir(parents=True)
        (found.home / ".ssh" / "id_ed25519").write_text("a-private-key\n")
        (found.home / "notes").write_text("some-notes\n")
        (found.workspace / "src").mkdir(parents=True)
        found.outside.mkdir()
        (found.outside / "file").write_text("unchanged\n")
        if repository:
            subprocess.run(["git", "init", "-q", found.workspace], check=True)
            (found.workspace / ".git" / "hooks").mkdir(exist_ok=True)
        yield found
    finally:
        # A daemon may still remove its placeholders.
        while root.exists():
            shutil.rmtree(root, ignore_errors=True)


@asynccontextmanager
async def started(
    provider: Provider, command: Command, pool: Pool | None = None
) -> AsyncIterator[Terminal]:
    """Run a command with a provider in a terminal; release it, and clean up, after the block."""
    prepared = await provider.prepare(command)
    try:
        if pool is not None:
            yield await pool.create(_program(prepared))
            return
        async with running_pool(grace=0.1) as own:
            terminal = await own.create(_program(prepared))
            try:
                yield terminal
            finally:
                terminal.kill(EndedBy.USER)
                own.release(terminal, EndedBy.USER)
                await terminal.wait_closed()
    finally:
        if prepared.token is not None:
            await provider.clean_up(prepared.token)


async def ran(provider: Provider, command: Command) -> tuple[int | None, str]:
    """Run a command with a provider; return its exit code and its output."""
    async with started(provider, command) as terminal:
        status = await terminal.wait_exited()
        return status.code, terminal.text.text()


def script(place: Place, *lines: str, **more: Any) -> Command:
    """Return the command of a shell that runs `lines` in the workspace."""
    return place.command("/bin/sh", "-c", "\n".join(lines), **more)


def _program(prepared: Prepared) -> Program:
    return Program(
        prepared.argv,
        env=prepared.env,
        cwd=prepared.cwd,
        umask=0o22,
        fallback_argv=prepared.fallback_argv,
    )
