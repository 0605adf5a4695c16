"""Starting a program, which may need the user's approval first.

The host asks the user (see docs/policy.md). The user may take longer than a call can wait, so a
start may outlive its call:

    begun ──▶ done: a session, or an error
      └── the call has to return ──▶ pending, under an id ──▶ done

A later call with the id of a pending start waits for the start again, and then uses its session. If
a call is cancelled before its start is pending, the start is cancelled, and the question to the
user is withdrawn.

If the MCP client can ask its user, there are two cases. With the setting
`mcp_elicitation_approves`, the host sends its question to this MCP server, the client asks the
user, and the answer counts. Without the setting, the client only tells the user where to answer.
"""

import itertools
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from textwrap import indent
from typing import Final

import anyio
from anyio.abc import TaskGroup

from acpterm.acp.approvals import ApprovalInfo, Decision
from acpterm.api.errors import AcptermError
from acpterm.client.sanitize import escape_invisible_text, one_line
from acpterm.mcp.connection import Question
from acpterm.mcp.questions import Ask
from acpterm.mcp.sessions import Launch, Session, Sessions
from acpterm.mcp.tool_error import ToolError
from acpterm.runtime.command_line import command_line

PENDING: Final = "pending-"
"""The beginning of the ids of pending starts; a number follows."""
INFORM_AFTER_S: Final = 0.5
"""Seconds after which a start that is not done is checked: it probably waits for the user."""
_DISCARD_TIMEOUT_S: Final = 2.0
_DONE_MAX: Final = 20
"""How many starts that were pending are retained when done, for calls that name their ids."""


class Start:
    """The start of a program, or of a command in a persistent shell.

    `begin` starts it, and returns its session; `undo` ends it again, if no call will know it. `ask`
    asks the user through the client; None if the client cannot.
    """

    def __init__(
        self,
        launch: Launch,
        ask: Ask | None,
        begin: Callable[[], Awaitable[Session]],
        undo: Callable[[Session], Awaitable[object]],
    ) -> None:
        self.launch: Final = launch
        self._begin: Final = begin
        self._undo: Final = undo
        self.command: Final = command_line(launch.command, launch.args)
        self.ask: Final = ask
        self.id: str | None = None
        """The id of a start that is or was pending; None otherwise."""
        self.is_asked = False
        """Whether the host has sent its question about this start to this connection."""
        self.done: Final = anyio.Event()
        self._scope: Final = anyio.CancelScope()
        self._session: Session | None = None
        self._error: Exception | None = None

    async def run(self) -> None:
        """Create and store the session. If that fails, store the error; `result` raises it."""
        try:
            with self._scope:
                self._session = await self._begin()
        except Exception as error:  # noqa: BLE001  `result` raises it
            self._error = error
        finally:
            if self._session is None and self._error is None:
                self._error = ToolError(f"the start of {self.command!r} was cancelled")
            self.done.set()

    async def discard(self) -> None:
        """Cancel the start, and withdraw the question to the user.

        If the program has started meanwhile, end it, since no call knows it.
        """
        self._scope.cancel()
        with anyio.move_on_after(_DISCARD_TIMEOUT_S, shield=True):
            await self.done.wait()
            if self._session is not None:
                with suppress(AcptermError):
                    await self._undo(self._session)

    def result(self) -> Session:
        """Return the session.

        Raises `ToolError` or `AcptermError` if the start has failed, and `ApprovalPendingError` if
        it is not done.
        """
        if self._error is not None:
            raise self._error
        if self._session is None:
            raise ApprovalPendingError(self)
        return self._session


class ApprovalPendingError(ToolError):
    """The user has not decided yet whether the program of `start` may run."""

    def __init__(self, start: Start) -> None:
        super().__init__(
            f"the user has not answered yet whether {start.command!r} may run; the user can: "
            "acpterm approvals"
        )
        self.start: Final = start


class Starts:
    """The starts of one MCP client. Their tasks run in `group`."""

    def __init__(self, group: TaskGroup) -> None:
        self._group: Final = group
        self._running: Final[list[Start]] = []
        self._pending: Final[dict[str, Start]] = {}
        self._numbers: Final = itertools.count(1)

    async def start(
        self,
        sessions: Sessions,
        start: Start,
        timeout_s: float,
        approval_s: float = math.inf,
    ) -> Session:
        """Start a program; return its session, which is one of `sessions`.

        Raises `ToolError` if the program cannot start, and
        `ApprovalPendingError` if it has not started `timeout_s` seconds after the call. While the
        user is asked about the command, the limit is the smaller of `timeout_s` and `approval_s`.
        If cancelled, discard the start.
        """
        self._running.append(start)
        self._group.start_soon(self._run, start)
        try:
            with anyio.move_on_after(min(timeout_s, INFORM_AFTER_S)):
                await start.done.wait()
            if not start.done.is_set():
                await self._wait_for_user(
                    start, sessions, timeout_s - INFORM_AFTER_S, approval_s - INFORM_AFTER_S
                )
        except BaseException:
            await start.discard()
            raise
        return start.result()

    async def _run(self, start: Start) -> None:
        try:
            await start.run()
        finally:
            self._running.remove(start)

    async def _wait_for_user(
        self, start: Start, sessions: Sessions, timeout_s: float, approval_s: float
    ) -> None:
        until = anyio.current_time() + approval_s

        async def wait_for_approval() -> None:
            if await is_asked(start, sessions):
                limit.deadline = min(limit.deadline, until)
                await _inform(start, sessions)

        with anyio.move_on_after(timeout_s) as limit:
            async with anyio.create_task_group() as tasks:
                if start.ask is not None or approval_s < timeout_s:
                    tasks.start_soon(wait_for_approval)
                await start.done.wait()
                tasks.cancel_scope.cancel()

    def keep(self, start: Start) -> str:
        """Make a start pending, since the user has not decided yet; return the id of the start."""
        if start.id is None:
            start.id = f"{PENDING}{next(self._numbers)}"
            self._pending[start.id] = start
            done = [key for key, each in self._pending.items() if each.done.is_set()]
            for key in done[:-_DONE_MAX]:
                del self._pending[key]
        return start.id

    def pending(self) -> list[str]:
        """Return the ids of the pending starts."""
        return [
            identifier for identifier, start in self._pending.items() if not start.done.is_set()
        ]

    def find(self, identifier: str) -> Start | None:
        """Return the start with this id, pending or done; None if there is none."""
        return self._pending.get(identifier)

    async def withdraw(self, identifier: str) -> bool:
        """Cancel the pending start with this id. Return False if there is none."""
        start = self._pending.get(identifier)
        if start is None or start.done.is_set():
            return False
        del self._pending[identifier]
        await start.discard()
        return True

    async def decide(self, info: ApprovalInfo) -> Decision | None:
        """Ask the user the host's question `info`, through the call that has caused the question.

        Return None if no call has caused the question, or if the user has not decided.
        """
        for start in self._running:
            if start.command == info.command and not start.is_asked:
                return await _decide(start, info)
        return None


async def is_asked(start: Start, sessions: Sessions) -> bool:
    """Return whether the program of `start` needs the user's approval.

    True if the host has already sent its question about `start`, or if the host's policy says that
    the user must be asked. An error of the request for the policy's decision is ignored.
    """
    launch = start.launch
    try:
        client = await sessions.client()
        check = await client.check(launch.command, launch.args, cwd=launch.cwd)
    except (AcptermError, ToolError):
        return start.is_asked
    return start.is_asked or check.decision == "ask"


async def _inform(start: Start, sessions: Sessions) -> None:
    """Tell the user, through the client, where to answer the host's question about `start`.

    Do nothing if the client cannot ask its user, or asks the question itself (`Start.is_asked`).
    """
    if start.ask is None or start.is_asked:
        return
    await start.ask(
        Question(
            f"{one_line(sessions.agent)} wants to run a command, and waits for your approval. "
            "You cannot approve it here. In a terminal of your own, run: acpterm approvals\n\n"
            f"{_shown(start.command)}",
            {"type": "object", "properties": {}},
        )
    )


async def _decide(start: Start, info: ApprovalInfo) -> Decision | None:
    """Ask the user the host's question `info` about `start`, and return the user's decision.

    Return None if the client cannot ask the user, or if the user has not decided.
    """
    if start.ask is None:
        return None
    start.is_asked = True
    answer = await start.ask(
        Question(
            f"{one_line(info.agent or 'An agent')} wants to run a command in {one_line(info.cwd)} "
            f"({one_line(info.level)}: {one_line(info.reason)}):\n\n{_shown(info.command)}",
            {
                "type": "object",
                "properties": {
                    "decision": {
                        "type": "string",
                        "title": "Run it?",
                        "enum": ["allow", "deny"],
                    }
                },
                "required": ["decision"],
            },
        )
    )
    if answer is None or answer.action == "cancel":
        return None
    is_allowed = answer.action == "accept" and (answer.content or {}).get("decision") == "allow"
    return "allow" if is_allowed else "deny"


def _shown(command: str) -> str:
    """Return `command` in the form in which a question to the user contains it.

    Each line is indented, so that no line of the command looks like text of acpterm.
    """
    return indent(escape_invisible_text(command), "    ", lambda _: True)
