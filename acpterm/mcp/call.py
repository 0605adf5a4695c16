"""One call of a tool: how long it may block, its progress, and the MCP client's terminal sessions.

MCP clients give up on a request after a minute, and report to the user that the command has failed.
So a call returns after `BLOCK_MAX_S` at most, with a state and an id with which a later call can
continue. A client that has sent a progress token is sent progress every `PROGRESS_INTERVAL_S`, so
that it does not give up, and the call may take up to `PROGRESS_MAX_S`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeAlias

import anyio

from acpterm.api.errors import AcptermError
from acpterm.config.tools import ToolSettings
from acpterm.mcp.named_shell import turn
from acpterm.mcp.questions import Ask
from acpterm.mcp.sessions import SessionLaunch, Sessions, TerminalSession
from acpterm.mcp.shells import Shells
from acpterm.mcp.starting import Start, Starts
from acpterm.mcp.tool_error import ToolError

BLOCK_MAX_S: Final = 45.0
PROGRESS_MAX_S: Final = 600.0
PROGRESS_INTERVAL_S: Final = 10.0
# A start that is not done by then probably waits for the user.
_INFORM_AFTER_S: Final = 0.5
# A call that has waited as long as it may still has to read the output.
_TURN_MIN_S: Final = 1.0

WITHDRAWN: Final = "[not started: the question to the user was withdrawn]"
"""The first line of the result about a pending start that was stopped."""
Report: TypeAlias = Callable[[float, str], Awaitable[None]]
"""Sends progress: seconds since the call began, and a sentence."""


class Call:
    """A call of a tool by a client, which may want progress (`report`) or ask its user (`ask`)."""

    def __init__(
        self,
        sessions: Sessions,
        starts: Starts,
        shells: Shells,
        settings: ToolSettings,
        *,
        report: Report | None = None,
        ask: Ask | None = None,
    ) -> None:
        self.sessions: Final = sessions
        self.starts: Final = starts
        self.shells: Final = shells
        self.ask: Final = ask
        self.settings: Final = settings
        self._report: Final = report
        self._began: Final = anyio.current_time()
        self._end: Final = self._began + (BLOCK_MAX_S if report is None else PROGRESS_MAX_S)
        self.approval_s: float | None = None
        """How many seconds the call waits for the user's approval; None if as long as it can."""
        self.doing = "working"
        """What the call is doing now, for progress messages."""

    async def start(self, launch: SessionLaunch) -> TerminalSession:
        """Start a program, and return its session; raise as `begin` does."""
        sessions = self.sessions
        launch = launch._replace(provider=self.settings.provider)
        begin = partial(sessions.start, launch)
        return await self.begin(Start(launch, self.ask, begin, sessions.remove))

    async def begin(self, start: Start) -> TerminalSession:
        """Begin a start, and return its session. If cancelled, discard the start.

        Raises the error of the start, and `ApprovalPendingError` if the user has not decided when
        the call has to return.
        """
        self.starts.begin(start)
        try:
            with anyio.move_on_after(min(self.remaining, _INFORM_AFTER_S)):
                await start.done.wait()
            if not start.done.is_set():
                await self._wait_for_user(start)
        except BaseException:
            await start.discard()
            raise
        return start.result()

    async def _wait_for_user(self, start: Start) -> None:
        async def wait_for_approval() -> None:
            if await self.is_asked(start):
                limit.deadline = min(limit.deadline, self._approval_end)
                await start.tell_where_to_answer(self.sessions.agent)

        with anyio.CancelScope(deadline=self._end) as limit:
            async with anyio.create_task_group() as tasks:
                if start.can_ask or self._approval_end < self._end:
                    tasks.start_soon(wait_for_approval)
                await start.done.wait()
                tasks.cancel_scope.cancel()

    async def is_asked(self, start: Start) -> bool:
        """Return whether the user is asked about `start`, or must be asked by the host's policy."""
        launch = start.launch
        with suppress(AcptermError, ToolError):
            client = await self.sessions.client()
            check = await client.check(launch.command, launch.args, cwd=launch.cwd)
            return start.is_asked or check.decision == "ask"
        return start.is_asked

    async def get(self, identifier: str) -> TerminalSession:
        """Return the session with this id, or wait for the pending start with this id.

        Raises `ToolError` if there is none, and as `begin` does.
        """
        start = self.starts.find(identifier)
        if start is None:
            return await self.sessions.get(identifier)
        if not start.done.is_set():
            self.doing = "waiting for the user's approval"
            with anyio.CancelScope(deadline=self._approval_end):
                await start.done.wait()
        return start.result()

    async def stop(self, identifier: str) -> TerminalSession | None:
        """Stop the session with this id, and return it; None if it was a pending start."""
        if await self.starts.withdraw(identifier):
            return None
        session = await self.get(identifier)
        await self.sessions.stop(session)
        return session

    @asynccontextmanager
    async def turn(self, session: TerminalSession) -> AsyncIterator[None]:
        """Let no other call type into the session or read its new output during the block.

        Raises `ToolError` if another call does so too long, or if the session was removed.
        """
        busy = f"another call still uses {session.id}: call again"
        async with turn(session.turn, max(_TURN_MIN_S, self.remaining), busy):
            if session not in self.sessions.all():
                raise self.sessions.unknown(session.id)
            yield

    @property
    def remaining(self) -> float:
        return max(0.0, self._end - anyio.current_time())

    @property
    def _approval_end(self) -> float:
        if self.approval_s is None:
            return self._end
        return min(self._end, self._began + self.approval_s)

    def limited(self, seconds: float) -> float:
        return min(max(0.0, seconds), self.remaining)

    async def report(self, message: str) -> None:
        if self._report is not None:
            await self._report(anyio.current_time() - self._began, message)

    async def send_progress(self) -> None:
        """Send progress until cancelled. Return at once if the client does not want progress."""
        while self._report is not None:
            await anyio.sleep(PROGRESS_INTERVAL_S)
            await self.report(f"{self.doing}, {anyio.current_time() - self._began:.0f} s")
