"""The terminal sessions of an MCP client, and the position up to which each was read.

A session is *running* until its program has ended, then *ended*. Sessions are listed until a result
has reported their end. An ended session can be read until it is *removed*. It is removed when the
client stops it. If results have reported the end of more than `ENDED_MAX` sessions, the oldest of
these is removed, too.

The id of a session is the name of its terminal on the host: `term-1`, `term-2`, … The id of a
terminal, and the name of a persistent shell, are accepted as well. If this process has no session
for the terminal, for example after a restart, a session is added.

On the connection to the host, the MCP client is an agent. The first call that needs it opens it. If
it was lost, the next call opens another one; the terminals of the earlier one have ended by then.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus

from acpterm.acp.user_api import TerminalInfo
from acpterm.api.client import Client
from acpterm.api.errors import AcptermError, ClosedError, RequestError
from acpterm.api.questions import Asks
from acpterm.api.results import Exit, Screen
from acpterm.api.terminal import Terminal
from acpterm.jsonrpc import readable
from acpterm.mcp.tool_error import ToolError, shortened
from acpterm.shell.kind import without_typed_lines

ENDED_MAX: Final = 20
NAME: Final = "term-#"
# How often a wait looks whether a program has drawn the screen: less and less often, since a screen
# is much to send, and most programs draw it soon or never.
_DRAWN_CHECK_MIN_S: Final = 0.5
_DRAWN_CHECK_MAX_S: Final = 8.0
_DRAWN_GRACE_S: Final = 0.5

T = TypeVar("T")

Connect: TypeAlias = Callable[[str, Asks | None], AbstractAsyncContextManager[Client]]
"""Opens a connection for the agent with the given name, whose user is asked by the function."""


class SessionLaunch(NamedTuple):
    """A program to start. The fields are arguments of `Client.create`, which describes them."""

    command: str
    args: list[str] | None = None
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    name: str = NAME
    cols: int | None = None
    rows: int | None = None
    timeout_s: float | None = None
    shell: bool | None = None
    provider: str | None = None


@dataclass(eq=False)
class TerminalSession:
    """A terminal of an MCP client, and how far the client has read its output."""

    id: str
    terminal: Terminal
    command: str
    cwd: str
    began: float = field(default_factory=anyio.current_time)
    position: int = 0  # where the next read begins, in bytes of output
    search_position: int = 0  # where the output since the last input begins
    matched: int = 0  # the index in that output up to which results have reported matches
    typed: str = ""  # the last input; empty if it was not echoed
    exit: Exit | None = None  # set by the read that has seen the end
    is_reported: bool = False  # whether a result has reported the end
    prompt: str = ""  # the last line of output
    argv: list[str] | None = None  # the command, if it was given as words
    unread: str = ""  # the incomplete last line, which the next result begins with
    cwd_gone: str | None = None  # where the program would have started if that were not gone
    # The position at which a result has reported that the program waits or is stopped; -1 if none.
    reported_waiting: int = -1
    is_idle: bool = False  # whether that was a shell at its prompt, an editor or a pager
    is_full_screen: bool = False  # whether a program drew the whole screen at the last look
    shell: str | None = None  # the name of a persistent shell
    # Held by a call that types and reads, so that another call gets none of its output.
    turn: anyio.Lock = field(default_factory=anyio.Lock)

    def report_waiting(self, *, waits: bool, is_idle: bool = False) -> None:
        """Record what a result reports of the program at `position`: whether it waits."""
        self.reported_waiting = self.position if waits else -1
        self.is_idle = is_idle

    async def full_screen(self) -> Screen | None:
        """Return the screen if a program draws the whole of it; otherwise None."""
        screen = await self._full_screen()
        self.is_full_screen = screen is not None
        return screen

    async def _full_screen(self) -> Screen | None:
        with suppress(RequestError):  # without an emulator there is no screen
            screen = await self.terminal.screen()
            return screen if screen.is_full_screen else None
        return None

    async def wait_drawn(self) -> None:
        pause = _DRAWN_CHECK_MIN_S
        while (screen := await self._full_screen()) is None or not screen.text().strip():
            await anyio.sleep(pause)
            pause = min(2 * pause, _DRAWN_CHECK_MAX_S)
        # An editor waits for input soon after it has drawn the screen, which says more.
        await anyio.sleep(_DRAWN_GRACE_S)

    def clean(self, text: str) -> str:
        """Return text of the terminal without the lines that hand commands to a shell."""
        return without_typed_lines(text) if self.shell is not None else text

    @property
    def uptime(self) -> float:
        """The seconds since the start, or the run time of a program that has ended."""
        if self.exit is not None:
            return self.exit.wall_seconds
        return anyio.current_time() - self.began

    @property
    def runs_on(self) -> bool:
        return self.exit is not None and bool(self.exit.background)


async def unless_drawn(
    session: TerminalSession, least_s: float, wait: Callable[[], Awaitable[T]]
) -> T | None:
    """Return the result of `wait`; None if the whole screen is drawn before, after `least_s`."""
    result: T | None = None
    failure: Exception | None = None

    async def wait_drawn() -> None:
        await anyio.sleep(least_s)
        with suppress(AcptermError):  # `wait` fails, too
            await session.wait_drawn()
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_drawn)
        try:
            result = await wait()
        except (AcptermError, ToolError) as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result


class Sessions:
    """The sessions of one MCP client, which is the agent `agent` to the host.

    A task of `group` holds the connection, which `connect` opens.
    """

    def __init__(
        self,
        connect: Connect,
        group: TaskGroup,
        agent: str,
        cwd: str,
        *,
        asks: Asks | None = None,
    ) -> None:
        self.agent: Final = agent
        self._asks: Final = asks
        self.cwd: Final = cwd
        self._connect: Final = connect
        self._group: Final = group
        self._sessions: Final[dict[str, TerminalSession]] = {}
        self._client: Client | None = None
        self._opening: Final = anyio.Lock()
        self._closing = anyio.Event()
        self.turn: Final = anyio.Lock()
        """Held by calls of a set whose tools use one session."""
        self.changed = anyio.Event()
        """Is set when a session is added or removed, and then replaced by another event."""

    async def client(self) -> Client:
        """Return the connection to the host. Raises `ToolError` if the host cannot be reached."""
        async with self._opening:
            if self._client is None:
                try:
                    self._client = await self._group.start(self._hold_connection)
                except AcptermError as error:
                    why = f"the host of the terminals cannot be reached: {error}"
                    raise ToolError(why) from error
                # The terminals of an earlier connection ended with it.
                self._sessions.clear()
                self._notify()
            return self._client

    async def _hold_connection(
        self, *, task_status: TaskStatus[Client] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        # A connection must be closed in the task that has opened it.
        closing = self._closing = anyio.Event()
        started = False
        try:
            async with self._connect(self.agent, self._asks) as client:
                started = True
                task_status.started(client)
                await closing.wait()
        except Exception:
            # The next call that uses the connection fails with the reason (`disconnected`).
            if not started:
                raise

    def disconnected(self, error: ClosedError) -> ToolError:
        # Another call may have opened the next connection already.
        if self._client is not None and self._client.is_closed:
            self._client = None
            self._closing.set()
        return ToolError(
            f"the connection to the host of the terminals was lost, and its terminals have ended: "
            f"{error}; call the tool again to start over"
        )

    async def start(self, launch: SessionLaunch) -> TerminalSession:
        client = await self.client()
        if not launch.command.strip():
            raise ToolError("command is empty: it must be the command to execute")
        try:
            terminal = await client.create(
                launch.command,
                launch.args,
                cwd=launch.cwd,
                env=launch.env,
                name=launch.name,
                cols=launch.cols,
                rows=launch.rows,
                timeout=launch.timeout_s,
                shell=launch.shell,
                provider=launch.provider,
            )
        except RequestError as error:
            raise ToolError(str(error)) from error
        return self.add(terminal, launch.command, os.path.join(self.cwd, launch.cwd or self.cwd))

    def add(self, terminal: Terminal, command: str, cwd: str) -> TerminalSession:
        """Add a session for a terminal that exists, and return the session."""
        cwd = readable(terminal.cwd or cwd)
        session = TerminalSession(terminal.name or terminal.id, terminal, command, cwd)
        session.cwd_gone = terminal.cwd_gone
        # The host may use the name of a released terminal again.
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session
        self._notify()
        return session

    async def get(self, identifier: str) -> TerminalSession:
        """Return the session or the host's terminal with this id; `ToolError` if there is none."""
        session = await self.find(identifier)
        if session is None:
            raise self.unknown(identifier)
        return session

    async def find(self, identifier: str) -> TerminalSession | None:
        """Return the session that `identifier` names; None if there is none."""
        client = await self.client()
        session = self._find(identifier)
        if session is not None:
            return session
        try:
            info = await client.terminal(identifier).info()
        except RequestError:
            return None
        return self._find(info.terminal_id) or self._adopt(client, info)

    def _find(self, identifier: str) -> TerminalSession | None:
        if (session := self._sessions.get(identifier)) is not None:
            return session
        for one in reversed(self._sessions.values()):
            if identifier in (one.terminal.id, one.shell):
                return one
        number = NAME.replace("#", identifier) if identifier.isdecimal() else ""
        return self._sessions.get(number)

    def _adopt(self, client: Client, info: TerminalInfo) -> TerminalSession:
        terminal = client.terminal(info.terminal_id)
        session = self.add(terminal, info.command, info.cwd)
        if info.name is not None and info.name not in self._sessions:
            del self._sessions[session.id]
            session.id = info.name
            self._sessions[session.id] = session
        return session

    def unknown(self, identifier: str) -> ToolError:
        known = f"the last is {[*self._sessions][-1]}" if self._sessions else "there are none"
        return ToolError(f"there is no session {shortened(identifier)!r}; {known}")

    def all(self) -> list[TerminalSession]:
        return list(self._sessions.values())

    def active(self) -> list[TerminalSession]:
        return [each for each in self._sessions.values() if not each.is_reported]

    def listed(self) -> list[TerminalSession]:
        return [each for each in self._sessions.values() if not each.is_reported or each.runs_on]

    async def mark_reported(self, session: TerminalSession) -> None:
        """Record that a result has reported the end; remove the oldest beyond `ENDED_MAX`."""
        session.is_reported = True
        ended = [each for each in self._sessions.values() if each.is_reported and not each.runs_on]
        for oldest in ended[: max(0, len(ended) - ENDED_MAX)]:
            await self.remove(oldest)

    def forget(self, session: TerminalSession) -> None:
        """Remove a session whose terminal the host no longer has, or the caller releases."""
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]
            self._notify()

    async def stop(self, session: TerminalSession) -> None:
        """Remove a session as `remove`; raise `ToolError` if the user owns its terminal."""
        with suppress(RequestError):  # the host has released it already
            if (await session.terminal.info()).owner != "agent":
                raise ToolError(
                    f"{session.id} was not ended: the user owns it, since it was promoted; its "
                    "output can still be read"
                )
        await self.remove(session)

    async def remove(self, session: TerminalSession) -> None:
        """Remove a session and release its terminal; end its processes and its background."""
        self.forget(session)
        if session.exit is None or session.runs_on:
            with suppress(RequestError):  # the user owns it, or the host has released it already
                await session.terminal.kill()
        try:
            await session.terminal.release()
        except RequestError:
            return  # the host has released it already

    def _notify(self) -> None:
        changed, self.changed = self.changed, anyio.Event()
        changed.set()
