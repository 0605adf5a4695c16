"""Starting a program, which may need the user's approval first.

The host asks the user (see docs/policy.md). The user may take longer than a call can wait, so a
start may outlive its call:

    begun ──▶ done: a session, or an error
      └── the call has to return ──▶ pending, under an id ──▶ done

A later call with the id of a pending start waits for the start again, and then uses its session. If
a call is cancelled before its start is pending, the start is cancelled, and the question to the
user is withdrawn. `Call.begin` and `Call.get` wait.

If the MCP client can ask its user, there are two cases. With the setting
`mcp_elicitation_approves`, the host sends its question to this MCP server, the client asks the
user, and the answer counts. Without the setting, the client only tells the user where to answer.
"""

import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from textwrap import fill
from typing import Final

import anyio
from anyio.abc import TaskGroup

from acpterm.acp.approvals import ApprovalInfo, Decision
from acpterm.api.errors import AcptermError
from acpterm.mcp.connection import FormQuestion
from acpterm.mcp.questions import Ask
from acpterm.mcp.sessions import SessionLaunch, TerminalSession
from acpterm.mcp.tool_error import ToolError
from acpterm.runtime.command_line import command_line
from acpterm.runtime.sanitize import escape_invisible_text, one_line

PENDING: Final = "pending-"
"""The beginning of the ids of pending starts; a number follows."""
_DISCARD_TIMEOUT_S: Final = 2.0
_LINE_CHARS: Final = 72
"""Maximum characters of a line in a question. Claude Code shows only what fits into the window."""
# How many starts that were pending are retained when done, for calls that name their ids.
_DONE_MAX: Final = 20


class Start:
    """The start of a program, or of a command in a persistent shell.

    `begin` starts it, and returns its session; `undo` ends it again, if no call will know it.
    """

    def __init__(
        self,
        launch: SessionLaunch,
        ask: Ask | None,
        begin: Callable[[], Awaitable[TerminalSession]],
        undo: Callable[[TerminalSession], Awaitable[object]],
    ) -> None:
        self.launch: Final = launch
        self._begin: Final = begin
        self._undo: Final = undo
        self.command: Final = command_line(launch.command, launch.args)
        self._ask: Final = ask
        self.id: str | None = None  # set once it is pending
        self.is_asked = False  # whether the host has sent its question to this connection
        self.done: Final = anyio.Event()
        self._scope: Final = anyio.CancelScope()
        self._session: TerminalSession | None = None
        self._error: Exception | None = None

    @property
    def can_ask(self) -> bool:
        return self._ask is not None

    async def run(self) -> None:
        """Create the session; `result` returns it or raises the error."""
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
        """Cancel the start, and withdraw the question to the user."""
        self._scope.cancel()
        with anyio.move_on_after(_DISCARD_TIMEOUT_S, shield=True):
            await self.done.wait()
            # The program may have started meanwhile, and no call knows it.
            if self._session is not None:
                with suppress(AcptermError):
                    await self._undo(self._session)

    def result(self) -> TerminalSession:
        """Return the session. Raises `ApprovalPendingError` or the error of the start."""
        if self._error is not None:
            raise self._error
        if self._session is None:
            raise ApprovalPendingError(self)
        return self._session

    async def tell_where_to_answer(self, agent: str) -> None:
        """Tell the user, through the client, where to answer the host's question."""
        # With `is_asked`, the client asks the question itself.
        if self._ask is not None and not self.is_asked:
            # Claude Code shows as much of each line as fits into the window.
            text = (
                f"{one_line(agent)} wants to run a command, and waits for your approval.\n"
                "Answer in a terminal of your own, not here: acpterm approvals -f"
            )
            await self._ask(
                FormQuestion(_about(text, self.command), {"type": "object", "properties": {}})
            )

    async def decide(self, info: ApprovalInfo) -> Decision | None:
        """Ask the user the host's question; return None if the user has not decided."""
        self.is_asked = True
        if self._ask is None:
            # Another client of the token can ask. The host would refuse what is declined here.
            await anyio.sleep_forever()
            return None
        text = (
            f"{one_line(info.agent or 'An agent')} wants to run a command in {one_line(info.cwd)} "
            f"({one_line(info.level)}: {one_line(info.reason)}):"
        )
        decision = {"type": "string", "title": "Run it?", "enum": ["allow", "deny"]}
        schema = {"type": "object", "properties": {"decision": decision}, "required": ["decision"]}
        answer = await self._ask(FormQuestion(_about(text, info.command), schema))
        if answer is None or answer.action == "cancel":
            return None
        is_allowed = answer.action == "accept" and (answer.content or {}).get("decision") == "allow"
        return "allow" if is_allowed else "deny"


class ApprovalPendingError(ToolError):
    def __init__(self, start: Start) -> None:
        super().__init__(
            f"the user has not answered yet whether {start.command!r} may run; the user can: "
            "acpterm approvals -f"
        )
        self.start: Final = start


class Starts:
    def __init__(self, group: TaskGroup) -> None:
        self._group: Final = group
        self._running: Final[list[Start]] = []
        self._pending: Final[dict[str, Start]] = {}
        self._numbers: Final = itertools.count(1)

    def begin(self, start: Start) -> None:
        self._running.append(start)
        self._group.start_soon(self._run, start)

    async def _run(self, start: Start) -> None:
        try:
            await start.run()
        finally:
            self._running.remove(start)

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
        return [key for key, start in self._pending.items() if not start.done.is_set()]

    def find(self, identifier: str) -> Start | None:
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
        """Ask the user the host's question `info`, through the call that has caused it."""
        for start in self._running:
            if start.command == info.command and not start.is_asked:
                return await start.decide(info)
        return None


def _about(text: str, command: str) -> str:
    """Return a question about a command, none of whose lines looks like text of acpterm."""
    lines = escape_invisible_text(command).split("\n")
    shown = "\n".join("    " + "\n  … ".join(_pieces(line)) for line in lines)
    about = "\n".join(fill(line, _LINE_CHARS, break_on_hyphens=False) for line in text.split("\n"))
    return f"{about}\n\n{shown}"


def _pieces(line: str) -> list[str]:
    return [line[at : at + _LINE_CHARS] for at in range(0, len(line), _LINE_CHARS)] or [""]
