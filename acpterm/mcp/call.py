"""One call of a tool: how long it may block, its progress, and the MCP client's terminal sessions.

MCP clients give up on a request after a minute, and report to the user that the command has failed.
So a call returns after `BLOCK_MAX_S` at most, with a state and an id with which a later call can
continue. A client that has sent a progress token is sent progress every `PROGRESS_INTERVAL_S`, so
that it does not give up, and the call may take up to `PROGRESS_MAX_S`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeAlias

import anyio

from acpterm.config.tools import ToolSettings
from acpterm.mcp.named_shell import turn
from acpterm.mcp.questions import Ask
from acpterm.mcp.sessions import Launch, Session, Sessions
from acpterm.mcp.shells import Shells
from acpterm.mcp.starting import Start, Starts

BLOCK_MAX_S: Final = 45.0
PROGRESS_MAX_S: Final = 600.0
PROGRESS_INTERVAL_S: Final = 10.0
# A call that has waited as long as it may still has to read the output.
_TURN_MIN_S: Final = 1.0

Report: TypeAlias = Callable[[float, str], Awaitable[None]]
"""Sends progress: seconds since the call began, and a sentence."""


class Call:
    """A call of a tool.

    `sessions` has the terminal sessions of the MCP client, and `shells` has the client's persistent
    shells. `starts` starts the client's programs. `settings` are the tool settings for this client.
    `report` sends progress; None if the client does not want progress. `ask` asks the user; None if
    the client cannot ask.
    """

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
        self.approval_s: float | None = None
        """How many seconds the call waits for the user's approval of a program.

        If None, it waits as long as the call may block.
        """
        self.doing = "working"
        """What the call is doing now, for progress messages."""

    async def start(self, launch: Launch) -> Session:
        """Start a program, and return its session.

        Raises `ToolError` if the program cannot start, and `ApprovalPendingError` if the user has
        not decided about it when the call has to return.
        """
        sessions = self.sessions
        start = Start(launch, self.ask, partial(sessions.start, launch), sessions.remove)
        return await self.begin(start)

    async def begin(self, start: Start) -> Session:
        """Begin a start, and return its session; raise as `start` does."""
        return await self.starts.start(
            self.sessions, start, self.remaining, self.remaining_approval
        )

    async def get(self, identifier: str) -> Session:
        """Return the session with this id, or the session of the pending start with this id.

        Raises `ToolError` if there is none, or if the start has failed, and `ApprovalPendingError`
        if the user has not decided about the start.
        """
        start = self.starts.find(identifier)
        return await self.sessions.get(identifier) if start is None else start.result()

    @asynccontextmanager
    async def turn(self, session: Session) -> AsyncIterator[None]:
        """Let no other call type into the session or read its new output during the block.

        Raises `ToolError` if another call does so as long as this one may block, or if the session
        was removed.
        """
        busy = f"another call still uses {session.id}: call again"
        async with turn(session.turn, max(_TURN_MIN_S, self.remaining), busy):
            if session not in self.sessions.all():
                raise self.sessions.unknown(session.id)
            yield

    @property
    def remaining(self) -> float:
        """The seconds for which the call may still block."""
        limit = BLOCK_MAX_S if self._report is None else PROGRESS_MAX_S
        return max(0.0, self._began + limit - anyio.current_time())

    @property
    def remaining_approval(self) -> float:
        """The seconds for which the call may still wait for the user's approval."""
        if self.approval_s is None:
            return self.remaining
        return max(0.0, min(self.remaining, self._began + self.approval_s - anyio.current_time()))

    def limited(self, seconds: float) -> float:
        """Return `seconds`, but at most `remaining`, and at least 0."""
        return min(max(0.0, seconds), self.remaining)

    async def report(self, message: str) -> None:
        """Send a message as progress, if the client wants progress."""
        if self._report is not None:
            await self._report(anyio.current_time() - self._began, message)

    async def send_progress(self) -> None:
        """Send progress until cancelled. Return at once if the client does not want progress."""
        if self._report is None:
            return
        while True:
            await anyio.sleep(PROGRESS_INTERVAL_S)
            elapsed = anyio.current_time() - self._began
            await self._report(elapsed, f"{self.doing}, {elapsed:.0f} s")
