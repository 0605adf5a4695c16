"""Persistent shells: commands that share directory, variables and functions.

A shell has a name, and starts with its first command. It is *idle*, or *busy* with a command that
has not ended when its call had to return. A busy shell can be continued like any session; it can
also be set aside (`set_aside`): it becomes a background session, and the name gets a new shell.

A shell belongs to the connection to the host. If that was lost, the next command starts another.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from acpterm.api.client import Client
from acpterm.api.shell import Completed, Shell, ShellOptions
from acpterm.mcp.sessions import NAME, Launch, Session
from acpterm.mcp.tool_error import ToolError

if TYPE_CHECKING:
    from acpterm.mcp.call import Call

CATCH_UP_S: Final = 0.3
"""How long it takes at most to read what a shell has reported already."""
_GRACE_S: Final = 5.0
"""How much longer than its time limit a command may take to start."""


class NamedShell:
    """A shell, and its session once it has started. `reported` characters were in results."""

    def __init__(self, shell: Shell, client: Client) -> None:
        self.shell: Final = shell
        self.client: Final = client
        self.session: Session | None = None
        self.reported = 0
        self.cwd: str | None = None


class Shells:
    """The persistent shells of one MCP client."""

    def __init__(self) -> None:
        self._shells: Final[dict[str, NamedShell]] = {}
        self._aside: Final[list[NamedShell]] = []

    async def run(
        self, call: "Call", name: str, command: str, timeout_s: float
    ) -> tuple[Session, Completed]:
        """Run a command in the shell `name`. Raises `ToolError`, and `AcptermError` if refused."""
        named = await self._get(call, name)
        call.doing = f"running the command in the shell {name}"
        limit = call.limited(timeout_s)
        completed: Completed | None = None
        with anyio.move_on_after(call.remaining + _GRACE_S):
            async with call.starts.asking(Launch(command), call.ask):
                completed = await named.shell.run(command, timeout=limit)
        named.reported = 0
        if completed is None:
            raise ToolError(
                f"the command did not start in the shell {name!r}: the user has not answered "
                "whether it may run, or the shell is not ready; call again"
            )
        return self._result(call, named, command, completed), completed

    async def wait(
        self, call: "Call", session: Session, timeout_s: float
    ) -> tuple[Completed, str] | None:
        """Wait for the command of a busy shell; return its state, and its output that is new.

        Return None if the session is not that of a shell that runs a command.
        """
        named = next((each for each in self._all() if each.session is session), None)
        if named is None or not named.shell.busy:
            return None
        completed = await named.shell.wait(call.limited(timeout_s))
        new = completed.output[named.reported :]
        named.reported = len(completed.output)
        session.position = completed.position
        return completed, new

    def set_aside(self, name: str) -> None:
        """Make the busy shell `name` a background session: the name gets a new shell."""
        named = self._shells.pop(name, None)
        if named is not None:
            self._aside.append(named)

    async def close(self) -> None:
        """End all shells."""
        for named in self._all():
            await named.shell.close()
        self._shells.clear()
        self._aside.clear()

    def _all(self) -> list[NamedShell]:
        return [*self._shells.values(), *self._aside]

    async def _get(self, call: "Call", name: str) -> NamedShell:
        client = await call.sessions.client()
        named = self._shells.get(name)
        if named is not None and named.client is client:
            if named.shell.busy:
                await named.shell.wait(CATCH_UP_S)  # the command may have ended meanwhile
            if named.shell.busy and named.session is not None:
                raise ToolError(
                    f"a command still runs in the shell {name!r}: {named.session.command!r}; "
                    f"continue or stop it as the session {named.session.id}, or use another name"
                )
            return named
        cwd = next((each.cwd for each in reversed(self._aside) if each.client is client), None)
        options = ShellOptions(cwd or call.sessions.cwd, name=NAME)
        named = self._shells[name] = NamedShell(Shell(client, None, options), client)
        return named

    def _result(
        self, call: "Call", named: NamedShell, command: str, completed: Completed
    ) -> Session:
        """Return the session of the shell that has run a command, with what is known of it."""
        terminal = named.shell.terminal
        session = named.session
        if terminal is None:
            if session is None:
                raise ToolError(f"the shell has ended: {completed.detail}")
        elif session is None or session.terminal.id != terminal.id:
            session = named.session = call.sessions.add(terminal, command, completed.cwd or "")
        named.cwd = completed.cwd or named.cwd
        named.reported = len(completed.output)
        session.command = command
        session.cwd = completed.cwd or session.cwd
        session.position = session.input_position = completed.position
        session.prompt = completed.output.rpartition("\n")[2].strip()
        return session


@asynccontextmanager
async def closing(shells: Shells) -> AsyncIterator[Shells]:
    """End all shells at the end of the block."""
    try:
        yield shells
    finally:
        with anyio.move_on_after(_GRACE_S, shield=True):
            await shells.close()
