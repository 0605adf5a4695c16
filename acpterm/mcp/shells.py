"""Persistent shells: commands that share directory, variables and functions.

A shell has a name, and starts with its first command. It is *idle*, or *busy* with a command that
has not ended. The shell's terminal is a session of the tools (`sessions`), which can be continued
like any other, also after the call that ran the command. Calls that name the same shell take turns.

The call decides what happens to a command that has not ended when the call returns:

- The command *continues* in the busy shell.
- The command is *killed* at its time limit: interrupted; if it does not end, its shell is ended.
- The shell is *set aside* as a background session: the name gets a new shell, and the old shell is
  closed once the end of the command was reported.

A command whose call is cancelled is killed.

If the connection to the host was lost, or the shell's session was removed, the next command starts
another shell.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import anyio
from msgspec.structs import replace

from acpterm.api.client import Client
from acpterm.api.errors import AcptermError
from acpterm.api.results import Completed
from acpterm.api.shell import Shell
from acpterm.api.shell_process import ShellOptions, in_thread
from acpterm.mcp.named_shell import NamedShell, turn
from acpterm.mcp.sessions import NAME, Launch, Session
from acpterm.mcp.tool_error import ToolError

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acpterm.mcp.call import Call

AtLimit: TypeAlias = Literal["continue", "kill", "set_aside"]
"""What happens to a command that has not ended when its call returns: see the module."""

CATCH_UP_S: Final = 0.3
"""How many seconds to wait for a busy shell before a call is refused.

Its command may have ended, although no call has read the end yet.
"""
_CLOSE_TIMEOUT_S: Final = 5.0
_INTERRUPT_S: Final = 2.0
"""How long an interrupted command may take to end."""


class Ran(NamedTuple):
    """A command's session and result, and whether the command was killed at its time limit."""

    session: Session
    completed: Completed
    was_killed: bool = False


class Shells:
    """The persistent shells of one MCP client.

    Use them in a block `async with closing(shells)`, at whose end all of them are ended.
    """

    def __init__(self) -> None:
        self.group: TaskGroup | None = None
        self._shells: Final[dict[str, NamedShell]] = {}
        self._aside: Final[list[NamedShell]] = []
        self._turns: Final[dict[str, anyio.Lock]] = {}
        self._directories: Final[dict[str, str]] = {}

    async def run(
        self,
        call: "Call",
        name: str,
        command: str,
        timeout_s: float,
        *,
        cwd: str | None = None,
        at_limit: AtLimit = "continue",
    ) -> Ran:
        """Run a command in the shell `name`, which is started if it does not exist.

        Return the result when the command ends or waits for input, when it has run for `timeout_s`,
        or when the call has to return. If the command has not ended at this return, whether
        `timeout_s` is over or not, `at_limit` decides. With "continue", the command continues. With
        "set_aside", it continues too, but its shell is set aside at once. With "kill", it continues
        until it has run for `timeout_s`, and is then killed, even if this method has returned.

        `cwd` is the directory in which a new shell starts, and in which a shell that has started
        must be now. If `cwd` is None, a started shell may be in any directory (see `_get`). Raises
        `ToolError` if the shell is busy or in another directory, or if the command has not begun
        when the call has to return. Raises `AcptermError` if the command is refused.
        """
        call.doing = f"waiting for the shell {name}"
        lock = self._turns.setdefault(name, anyio.Lock())
        busy = f"another call still runs a command in the shell {name!r}, so this one was not run"
        async with turn(lock, call.remaining, f"{busy}; call again"):
            named = await self._get(call, name, cwd)
            call.doing = f"running the command in the shell {name}"
            completed = await self._run(call, named, command, timeout_s)
            session = named.record(call.sessions, command, completed)
            if not named.shell.busy:
                return Ran(session, completed)
            left = timeout_s - completed.wall_seconds
            if at_limit == "set_aside":
                self._directories[name] = named.cwd
                self._aside.append(self._shells.pop(name))
            elif at_limit == "kill":
                if left <= 0:
                    killed = replace(completed, **await self._end_command(named))
                    return Ran(session, killed, was_killed=True)
                if self.group is not None:
                    self.group.start_soon(self._kill_after, named, left)
            return Ran(session, completed)

    async def _run(
        self, call: "Call", named: NamedShell, command: str, timeout_s: float
    ) -> Completed:
        """Run a command in the shell `named`, and return the result.

        Return when the command ends or waits for input, when it has run for `timeout_s`, or when
        the call has to return. If cancelled, kill the command. Raises `ToolError` if the command
        has not begun when the call has to return.
        """
        completed: Completed | None = None
        deadline = anyio.current_time() + call.remaining
        named.runs += 1
        named.reported = 0
        try:
            async with named.lock:
                with anyio.CancelScope(deadline=deadline):
                    async with call.starts.asking(Launch(command), call.ask):
                        completed = await named.shell.run(command, timeout=call.limited(timeout_s))
                if completed is None and named.shell.busy:
                    # The command was typed, but approval or the start of the shell took all the
                    # time of the call.
                    completed = await named.shell.wait(0)
        except anyio.get_cancelled_exc_class():
            if named.shell.busy:
                with anyio.CancelScope(shield=True):
                    await self._end_command(named)
            raise
        if completed is None:
            raise ToolError(
                f"the command was not run in the shell: the user has not answered whether {command}"
                " may run (the user can: acpterm approvals), or the shell is not ready; call again"
            )
        return completed

    async def wait(
        self,
        call: "Call",
        session: Session,
        timeout_s: float,
        *,
        until_input: bool = True,
        input_since: int = -1,
    ) -> tuple[Completed, str] | None:
        """Wait for the command in the shell of `session`; return its result and its new output.

        The wait ends when the command ends, after `timeout_s`, or when the program waits for input,
        unless `until_input` is false; `input_since` is as in `Shell.wait`. Return None if
        `is_busy(session)` is false. Raises `ToolError` if another call waits for the same
        command during all this time.
        """
        await self._sweep(call, await call.sessions.client())
        named = next((each for each in self._all() if each.session is session), None)
        if named is None or not named.shell.busy:
            return None
        deadline = anyio.current_time() + call.limited(timeout_s)
        busy = f"another call waits for the command of {session.id}: call again"
        async with turn(named.lock, max(CATCH_UP_S, call.limited(timeout_s)), busy):
            if not self.is_busy(session):
                return None
            remaining = max(0.0, deadline - anyio.current_time())
            completed = await named.shell.wait(
                remaining, until_input=until_input, input_since=input_since
            )
        output = completed.output.encode()
        new = output[max(0, named.reported - completed.output_begin) :].decode(errors="ignore")
        named.reported = completed.output_begin + len(output)
        named.moved(completed)
        session.position = completed.position
        session.report_waiting(waits=completed.state == "waiting_for_input")
        if named in self._aside and not self.is_busy(session):
            await self._drop(named)
            await call.sessions.remove(session)
        return completed, new

    def unread(self, session: Session, text: str) -> None:
        """Make the next `wait` for `session` return `text` again, before newer output.

        `text` is the end of the output that the last `wait` for `session` has returned.
        """
        for each in self._all():
            if each.session is session:
                each.reported -= len(text.encode())

    def is_busy(self, session: Session) -> bool:
        """Return whether `session` is the terminal of a shell that is running a command."""
        return any(each.session is session and each.shell.busy for each in self._all())

    def idle_name(self, session: Session) -> str | None:
        """Return the name of the idle shell whose terminal is `session`; None if there is none."""
        return next(
            (
                name
                for name, each in self._shells.items()
                if each.session is session and not each.shell.busy
            ),
            None,
        )

    async def close(self) -> None:
        """End all shells."""
        async with anyio.create_task_group() as tasks:
            for named in self._all():
                tasks.start_soon(named.shell.close)
        self._shells.clear()
        self._aside.clear()

    def _all(self) -> list[NamedShell]:
        return [*self._shells.values(), *self._aside]

    async def _get(self, call: "Call", name: str, cwd: str | None) -> NamedShell:
        """Return the shell `name`, idle or not started; create it if there is none.

        A new shell starts in `cwd`. If `cwd` is None, a new shell starts in the directory of the
        shell of this name that was set aside last, or else in `Sessions.cwd`. Raises `ToolError`
        if the shell is busy, or if it runs in a directory other than a given `cwd`.
        """
        client = await call.sessions.client()
        await self._sweep(call, client)
        named = self._shells.get(name)
        if named is not None:
            await self._catch_up(named, name)
            if cwd is None or await _is_same(os.path.join(call.sessions.cwd, cwd), named.cwd):
                return named
            if named.shell.terminal is not None:
                raise ToolError(
                    f"the shell {name!r} is in {named.cwd}: use cd in the command to change that; "
                    "cwd is where a new shell starts"
                )
        base, last = call.sessions.cwd, self._directories.get(name)
        if cwd is None and last is not None and await in_thread(os.path.isdir, last):
            cwd = last
        # Without a directory, the host finds a parent if the session's own is gone.
        start = None if cwd is None else os.path.join(base, cwd)
        options = ShellOptions(start, name=NAME, provider=call.settings.provider)
        named = self._shells[name] = NamedShell(Shell(client, None, options), client, start or base)
        return named

    async def _catch_up(self, named: NamedShell, name: str) -> None:
        """Read what the shell has reported; raise `ToolError` if its last command has not ended."""
        if named.shell.busy:
            what = "" if named.session is None else f": {named.session.command!r}"
            how = "" if named.session is None else f" as the session {named.session.id}"
            busy = f"a command still runs in the shell {name!r}{what}; continue or stop it{how}, "
            busy += "or use another name"
            async with turn(named.lock, CATCH_UP_S, busy):
                if named.shell.busy:
                    await named.shell.wait(CATCH_UP_S)
            if named.shell.busy:
                raise ToolError(busy)

    async def _sweep(self, call: "Call", client: Client) -> None:
        """Close the shells of other connections than `client`, and those of removed sessions."""
        known = call.sessions.all()
        for named in self._all():
            is_removed = named.session is not None and named.session not in known
            if is_removed or named.client is not client:
                await self._drop(named)

    async def _drop(self, named: NamedShell) -> None:
        """Close a shell, and forget it: the next command under its name starts a new shell."""
        for name, each in list(self._shells.items()):
            if each is named:
                del self._shells[name]
        if named in self._aside:
            self._aside.remove(named)
        await named.shell.close()

    async def _kill_after(self, named: NamedShell, seconds: float) -> None:
        """Kill the command that runs now, if it still runs after `seconds`."""
        runs = named.runs
        await anyio.sleep(seconds)
        if named.runs == runs and named.shell.busy:
            await self._end_command(named)

    async def _end_command(self, named: NamedShell) -> dict[str, object]:
        """Interrupt the shell's command; if the command does not end, end the shell.

        Return the fields to replace in an earlier `Completed` of the same command: all fields if
        this method has read the end of the command, and otherwise only `state` and `detail`.
        """
        completed: Completed | None = None
        runs = named.runs
        with anyio.move_on_after(_INTERRUPT_S), suppress(AcptermError):
            await named.shell.interrupt()
            async with named.lock:
                if named.shell.busy and named.runs == runs:
                    completed = await named.shell.wait(until_input=False)
        if completed is not None:
            return {name: getattr(completed, name) for name in completed.__struct_fields__}
        if named.shell.busy and named.runs == runs:
            await self._drop(named)
            return {"state": "shell_ended", "detail": "the shell was ended with its command"}
        return {"state": "done", "detail": "another call has the result of the command"}


async def _is_same(directory: str, other: str) -> bool:
    return await in_thread(lambda: os.path.realpath(directory) == os.path.realpath(other))


@asynccontextmanager
async def closing(shells: Shells) -> AsyncIterator[Shells]:
    """End all shells at the end of the block."""
    async with anyio.create_task_group() as shells.group:
        try:
            yield shells
        finally:
            shells.group.cancel_scope.cancel()
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await shells.close()
