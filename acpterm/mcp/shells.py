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
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from acpterm.acp.agent_meta import BackgroundProcess
from acpterm.acp.user_api import TerminalInfo
from acpterm.api.client import Client
from acpterm.api.errors import AcptermError, RequestError
from acpterm.api.results import Completed, Stopped
from acpterm.api.shell import Shell
from acpterm.api.shell_process import ShellOptions, in_thread
from acpterm.mcp.cropping import Lost
from acpterm.mcp.named_shell import NamedShell, has_ended, turn
from acpterm.mcp.sessions import NAME, SessionLaunch, Sessions, TerminalSession, unless_drawn
from acpterm.mcp.starting import ApprovalPendingError, Start
from acpterm.mcp.tool_error import ToolError

if TYPE_CHECKING:
    from acpterm.mcp.call import Call

AtLimit: TypeAlias = Literal["continue", "kill", "set_aside"]
"""What happens to a command that has not ended when its call returns: see the module."""

CATCH_UP_S: Final = 0.3
"""How many seconds to wait for a busy shell before a call is refused.

Its command may have ended, although no call has read the end yet.
"""
# A command has begun by then, so that its output is known from its beginning.
_BEGIN_S: Final = 0.3
_LOOK_S: Final = 0.05
_TAKEN: Final = "another call has reported the end of the command"
_INTERRUPT_S: Final = 2.0
"""How long an interrupted command may take to end."""


class Ran(NamedTuple):
    name: str  # that of the shell
    session: TerminalSession
    completed: Completed
    new: str  # the output that no earlier result has covered, or the drawn screen
    lost: Lost | None  # what came before `new`
    background: list[BackgroundProcess]  # what runs beside the shell, or after its end
    is_background_new: bool  # whether an earlier result has not named one of them
    info: TerminalInfo | None = None  # set while the command waits for input
    stopped: Stopped | None = None
    screen_size: str | None = None  # 120x40, if `new` is a screen
    was_killed: bool = False  # at its time limit
    is_cwd_new: bool = False  # whether the command has changed the shell's directory


class Shells:
    """The persistent shells of one MCP client. Tasks in `group` kill commands at their limits."""

    def __init__(self, group: TaskGroup) -> None:
        self._group: Final = group
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

        Return when the command ends or waits for input, after `timeout_s`, or when the call has to
        return; `at_limit` says what happens to the command then. With "kill", it is killed after
        `timeout_s` even if this method has returned. A shell that has started must be in `cwd`.
        Raises `ApprovalPendingError` if the user has not decided when the call has to return; once
        the user approves, the command runs, and `wait` waits for it. Raises `ToolError` if the
        shell is busy, not ready or in another directory.
        """
        call.doing = f"waiting for the shell {name}"
        lock = self._turns.setdefault(name, anyio.Lock())
        busy = f"another call still runs a command in the shell {name!r}, so this one was not run"
        async with turn(lock, call.remaining, f"{busy}; call again"):
            named = await self._get(call, name, cwd)
            call.doing = f"running the command in the shell {name}"
            begin = partial(self._begin, call.sessions, named, command)
            start = Start(
                SessionLaunch(command), call.ask, begin, lambda _: self._end_command(named)
            )
            named.start = start
            try:
                session = await call.begin(start)
            except ApprovalPendingError:
                if not await call.is_asked(start):
                    await start.discard()
                    raise ToolError(
                        "the command was not run in the shell: the shell is not ready; call again"
                    ) from None
                if at_limit == "set_aside":
                    self._set_aside(named)
                elif at_limit == "kill":
                    self._group.start_soon(self._kill_after, named, timeout_s)
                raise
            completed = await self._follow_own(named, call, session, timeout_s)
            left = timeout_s - completed.wall_seconds
            if has_ended(completed):
                return await self._report(call, named, session, completed)
            if at_limit == "set_aside":
                self._set_aside(named)
            elif at_limit == "kill":
                if left <= 0:
                    completed = replace(completed, **await self._end_command(named))
                    ran = await self._report(call, named, session, completed)
                    return ran._replace(was_killed=True)
                self._group.start_soon(self._kill_after, named, left)
            return await self._report(call, named, session, completed)

    async def _begin(self, sessions: Sessions, named: NamedShell, command: str) -> TerminalSession:
        """Give a command to the shell, once the user allows it. If cancelled, kill it."""
        named.runs += 1
        named.reported, named.unreported = 0, None
        try:
            async with named.lock:
                completed = await named.shell.run(command, timeout=_BEGIN_S)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._end_command(named)
            raise
        except ValueError as error:  # a NUL character or a lone surrogate
            raise ToolError(f"the command was not run: {error}") from error
        except AcptermError:
            if named in self._aside:
                await self._drop(named)
            raise
        return named.record(sessions, command, completed)

    async def _follow_own(
        self, named: NamedShell, call: "Call", session: TerminalSession, timeout_s: float
    ) -> Completed:
        """Wait for the command that `call` has begun. If cancelled, kill the command."""
        begun = named.begun
        assert begun is not None  # noqa: S101  the command has begun
        left = call.limited(timeout_s - begun.wall_seconds)
        deadline = anyio.current_time() + left

        async def follow() -> Completed:
            return await self._follow(named, deadline - anyio.current_time())

        try:
            async with turn(named.lock, left, _TAKEN):
                least = call.settings.min_interval
                completed = await unless_drawn(session, least, follow)
                return completed or await self._follow(named, 0, until_input=False)
        except ToolError:
            return replace(begun, state="running", wall_seconds=begun.wall_seconds + left)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._end_command(named)
            raise

    async def _follow(
        self,
        named: NamedShell,
        timeout_s: float,
        *,
        until_input: bool = True,
        input_since: int = -1,
    ) -> Completed:
        if named.unreported is not None:
            return named.unreported
        if not named.shell.busy:
            raise ToolError(_TAKEN)
        return await named.shell.wait(timeout_s, until_input=until_input, input_since=input_since)

    async def _report(
        self, call: "Call", named: NamedShell, session: TerminalSession, completed: Completed
    ) -> Ran:
        before = named.cwd
        new, lost = named.report(completed)
        background: list[BackgroundProcess] = []
        info, stopped, screen = None, None, None
        with suppress(RequestError):  # the user has removed the terminal
            if completed.state == "done":
                info = await session.terminal.info(background=True)
                background = info.background or []
            elif completed.state == "waiting_for_input":
                info = await session.terminal.info()
                stopped = (await session.terminal.read(session.position, max_bytes=1)).stopped
        if has_ended(completed):
            session.is_full_screen = False
        elif (screen := await session.full_screen()) is not None:
            new, lost = screen.text(), None
            completed = replace(completed, output=new, truncated=False)
        if completed.state == "shell_ended":
            session.exit = named.shell.last_exit
            background = [] if session.exit is None else [*session.exit.background]
            session.command = f"shell {named.name}"
            named.session = None
            await call.sessions.mark_reported(session)
        pids = {each.pid for each in background}
        is_new = completed.state == "shell_ended" or not pids <= named.named_pids
        named.named_pids = pids
        if named in self._aside and not named.shell.busy and not background:
            await self._drop(named)
            await call.sessions.remove(session)
        size = None if screen is None else f"{screen.cols}x{screen.lines}"
        return Ran(
            named.name,
            session,
            completed,
            new,
            lost,
            background,
            is_new,
            info,
            stopped,
            size,
            is_cwd_new=named.cwd != before,
        )

    def _set_aside(self, named: NamedShell) -> None:
        self._directories[named.name] = named.cwd
        del self._shells[named.name]
        self._aside.append(named)

    async def wait(
        self,
        call: "Call",
        session: TerminalSession,
        timeout_s: float,
        *,
        until_input: bool = True,
        input_since: int = -1,
    ) -> Ran | None:
        """Wait for the command in the shell of `session`; return what is new.

        Return None if `is_busy(session)` is false. Raises `ToolError` if another call waits for the
        command during all this time. The other parameters are those of `Shell.wait`.
        """
        await self._sweep(call, await call.sessions.client())
        named = self._of(session)
        if named is None or not named.has_command:
            return None
        deadline = anyio.current_time() + call.limited(timeout_s)
        busy = f"another call waits for the command of {session.id}: call again"
        async with turn(named.lock, max(CATCH_UP_S, call.limited(timeout_s)), busy):
            if not self.is_busy(session):
                return None
            remaining = max(0.0, deadline - anyio.current_time())
            completed = await self._follow(
                named, remaining, until_input=until_input, input_since=input_since
            )
            return await self._report(call, named, session, completed)

    async def catch_up(self, session: TerminalSession) -> bool:
        """Return whether the command in the shell of `session` runs, as far as is known now."""
        named = self._of(session)
        if named is not None and named.shell.busy and not named.lock.statistics().locked:
            async with named.lock:
                await self._look(named, _LOOK_S)
        return named is not None and named.shell.busy

    async def _look(self, named: NamedShell, seconds: float) -> None:
        """Find out whether the shell's command has ended. The caller holds the lock."""
        if named.shell.busy:
            completed = await named.shell.wait(seconds)
            named.unreported = completed if has_ended(completed) else None

    def unread(self, session: TerminalSession, text: str) -> None:
        """Make the next `wait` return `text`, the end of the last output, again."""
        if (named := self._of(session)) is not None:
            named.reported -= len(text.encode())

    def is_busy(self, session: TerminalSession) -> bool:
        """Return whether a shell's command runs in `session`, or its end was not reported yet."""
        named = self._of(session)
        return named is not None and named.has_command

    def idle_name(self, session: TerminalSession) -> str | None:
        """Return the name of the idle shell whose terminal is `session`; None if there is none."""
        named = self._of(session)
        is_idle = named is not None and named in self._shells.values() and not named.has_command
        return named.name if named is not None and is_idle else None

    async def close(self) -> None:
        async with anyio.create_task_group() as tasks:
            for named in self._all():
                tasks.start_soon(named.shell.close)
        self._shells.clear()
        self._aside.clear()

    def _of(self, session: TerminalSession) -> NamedShell | None:
        return next((each for each in self._all() if each.session is session), None)

    def _all(self) -> list[NamedShell]:
        return [*self._shells.values(), *self._aside]

    async def _get(self, call: "Call", name: str, cwd: str | None) -> NamedShell:
        """Return the shell `name`, idle or not started; create it if there is none."""
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
        provider = call.settings.provider
        options = ShellOptions(start, name=NAME, provider=provider, keeps_terminal=True)
        shell = Shell(client, None, options)
        named = self._shells[name] = NamedShell(name, shell, client, start or base)
        return named

    async def _catch_up(self, named: NamedShell, name: str) -> None:
        """Read what the shell has reported; raise `ToolError` if its last command has not ended."""
        if named.start is not None and not named.start.done.is_set():
            how = "" if named.start.id is None else f" ({named.start.id})"
            raise ToolError(
                f"in the shell {name!r}, a command waits for the user's approval{how}: "
                f"{named.start.command!r}; the user can: acpterm approvals -f; or use another name"
            )
        if named.shell.busy:
            what = "" if named.session is None else f": {named.session.command!r}"
            how = "" if named.session is None else f" as the session {named.session.id}"
            busy = f"a command still runs in the shell {name!r}{what}; continue or stop it{how}, "
            busy += "or use another name"
            async with turn(named.lock, CATCH_UP_S, busy):
                await self._look(named, CATCH_UP_S)
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
        if self._shells.get(named.name) is named:
            del self._shells[named.name]
        if named in self._aside:
            self._aside.remove(named)
        await named.shell.close()

    async def _kill_after(self, named: NamedShell, seconds: float) -> None:
        """Kill the command that runs or starts now, if it still runs after `seconds`."""
        if named.start is not None:
            await named.start.done.wait()
        runs = named.runs
        await anyio.sleep(seconds)
        if named.runs == runs and named.shell.busy:
            await self._end_command(named)

    async def _end_command(self, named: NamedShell) -> dict[str, object]:
        """Interrupt the shell's command; if the command does not end, end the shell.

        Return the fields to replace in an earlier `Completed` of the same command.
        """
        completed: Completed | None = None
        runs = named.runs
        is_idle = not named.shell.busy
        if is_idle:
            return {}
        with anyio.move_on_after(_INTERRUPT_S), suppress(AcptermError):
            await named.shell.interrupt()
            async with named.lock:
                if named.shell.busy and named.runs == runs:
                    completed = await named.shell.wait(until_input=False)
        if completed is not None:
            named.unreported = completed
            return {name: getattr(completed, name) for name in completed.__struct_fields__}
        if named.shell.busy and named.runs == runs:
            await self._drop(named)
            return {"state": "shell_ended", "detail": "the shell was ended with its command"}
        return {"state": "done", "detail": "another call has the result of the command"}


async def _is_same(directory: str, other: str) -> bool:
    return await in_thread(lambda: os.path.realpath(directory) == os.path.realpath(other))
