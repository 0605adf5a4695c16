"""A persistent shell (see `shells`), and the `sessions.TerminalSession` of the shell's terminal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from acpterm.api.client import Client
from acpterm.api.results import Completed
from acpterm.api.shell import Shell
from acpterm.jsonrpc import readable
from acpterm.mcp.cropping import Lost
from acpterm.mcp.sessions import Sessions, TerminalSession
from acpterm.mcp.tool_error import ToolError

if TYPE_CHECKING:
    from acpterm.mcp.starting import Start


def has_ended(completed: Completed) -> bool:
    return completed.state in ("done", "shell_ended")


class NamedShell:
    def __init__(self, name: str, shell: Shell, client: Client, cwd: str) -> None:
        self.name: Final = name
        self.shell: Final = shell
        self.client: Final = client
        self.lock: Final = anyio.Lock()
        self.session: TerminalSession | None = None
        self.start: Start | None = None
        """The start of the last command, which may wait for the user's approval."""
        self.begun: Completed | None = None
        """What the last command had done soon after its beginning."""
        self.unreported: Completed | None = None
        """How the last command has ended, if no result has reported that yet."""
        self.reported = 0
        """How many bytes of the last command's output earlier results have covered."""
        self.runs = 0
        """The number of commands so far."""
        self.named_pids: set[int] = set()
        """The pids of the background that results have reported."""
        self.cwd = cwd

    @property
    def has_command(self) -> bool:
        """Whether a command runs, or no result has reported yet how it has ended."""
        return self.shell.busy or self.unreported is not None

    def record(self, sessions: Sessions, command: str, completed: Completed) -> TerminalSession:
        """Record a command that has begun; return the session of the shell."""
        # The command may have ended its shell: `terminal` is None then.
        terminal = self.shell.last_terminal
        assert terminal is not None  # noqa: S101  a command has run
        session = self.session
        if session is None or session.terminal.id != terminal.id:
            session = self.session = sessions.add(terminal, command, self.cwd)
            session.shell = self.name
            self.named_pids = set()
        self.begun = completed
        self.unreported = completed if has_ended(completed) else None
        session.command = command
        session.typed, session.matched = "", 0
        session.position = session.search_position = max(completed.begin, session.position)
        session.report_waiting(waits=False)
        return session

    def report(self, completed: Completed) -> tuple[str, Lost | None]:
        """Record that a result reports `completed`; return the new output, and what was lost."""
        self.unreported = None
        output = completed.output.encode()
        gap = completed.output_begin - self.reported
        new = output[max(0, self.reported - completed.output_begin) :].decode(errors="ignore")
        is_first, self.reported = not self.reported, completed.output_begin + len(output)
        session = self.session
        if completed.cwd:
            self.cwd = completed.cwd
        if session is not None:
            if completed.cwd:
                session.cwd = readable(completed.cwd)
            session.position = completed.position
            session.report_waiting(waits=completed.state == "waiting_for_input")
            session.prompt = completed.output.rpartition("\n")[2].strip()
        if gap <= 0:
            return new, None
        return new, Lost(gap, None, (completed.beginning or "") if is_first else "")


@asynccontextmanager
async def turn(lock: anyio.Lock, seconds: float, otherwise: str) -> AsyncIterator[None]:
    """Hold `lock` in the block. Raises `ToolError(otherwise)` if it is not free in time."""
    with anyio.move_on_after(seconds) as scope:
        await lock.acquire()
    if scope.cancelled_caught:
        raise ToolError(otherwise)
    try:
        yield
    finally:
        lock.release()
