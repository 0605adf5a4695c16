"""A persistent shell (see `shells`), and the `sessions.Session` of the shell's terminal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from acpterm.api.client import Client
from acpterm.api.results import Completed
from acpterm.api.shell import Shell
from acpterm.jsonrpc import readable
from acpterm.mcp.sessions import Session, Sessions
from acpterm.mcp.tool_error import ToolError


class NamedShell:
    """A persistent shell, and the session of its terminal.

    `session` is that session; None until `record` has recorded the first command.
    `client` is the connection to the host on which the shell runs. `cwd` is the directory of the
    shell, as far as it is known. A task must hold `lock` while it runs or waits for a command.
    """

    def __init__(self, shell: Shell, client: Client, cwd: str) -> None:
        self.shell: Final = shell
        self.client: Final = client
        self.lock: Final = anyio.Lock()
        self.session: Session | None = None
        self.reported = 0
        """How many bytes of the last command's output earlier results have covered."""
        self.runs = 0
        """The number of commands so far."""
        self.cwd = cwd

    def moved(self, completed: Completed) -> None:
        """Record the directory in which a command has left the shell."""
        if completed.cwd:
            self.cwd = completed.cwd
            if self.session is not None:
                self.session.cwd = readable(completed.cwd)

    def record(self, sessions: Sessions, command: str, completed: Completed) -> Session:
        """Record the command and its result in the shell and its session; return the session.

        If the shell has a new terminal, add a session for this terminal to `sessions`.
        """
        # The command may have ended its shell: `terminal` is None then.
        terminal = self.shell.last_terminal
        assert terminal is not None  # noqa: S101  a command has run
        session = self.session
        if session is None or session.terminal.id != terminal.id:
            session = self.session = sessions.add(terminal, command, completed.cwd or "")
        self.moved(completed)
        self.reported = completed.output_begin + len(completed.output.encode())
        session.command = command
        session.position = session.input_position = completed.position
        session.report_waiting(waits=completed.state == "waiting_for_input")
        session.prompt = completed.output.rpartition("\n")[2].strip()
        return session


@asynccontextmanager
async def turn(lock: anyio.Lock, seconds: float, otherwise: str) -> AsyncIterator[None]:
    """Hold `lock` in the block.

    Raises `ToolError`, with the message `otherwise`, if the lock is not free after `seconds`.
    """
    with anyio.move_on_after(seconds) as scope:
        await lock.acquire()
    if scope.cancelled_caught:
        raise ToolError(otherwise)
    try:
        yield
    finally:
        lock.release()
