"""One turn, as it is shown: the agent's updates and what its terminals print, to a printer.

Terminals are shown from when a tool call first embeds them: those of the host, which are followed,
and those that the agent has itself and tells of (`notes`).
"""

from typing import TYPE_CHECKING, Final

from msgspec import Raw, UnsetType

from acpterm.acp import OtherUpdate, SessionNotification, ToolCall, ToolCallUpdate, read_update
from acpterm.acp.raw_json import items, members, text
from acpterm.acp.terminal_updates import (
    V2_KINDS,
    Exit,
    ExitInfo,
    Info,
    Output,
    TerminalUpdate,
    from_meta,
    from_v2,
)
from acpterm.client.prompt.printer import Printer
from acpterm.client.prompt.tool_calls import ToolCalls
from acpterm.client.update import SessionKey, read
from acpterm.jsonrpc import RpcError

if TYPE_CHECKING:
    from collections.abc import Callable

_MESSAGE: Final = "agent_message_chunk"
_OVER: Final = ("completed", "failed")


class Turn:
    """What is shown of a turn."""

    def __init__(self, printer: Printer, calls: ToolCalls) -> None:
        self._printer = printer
        self._calls = calls
        self._ours: set[SessionKey] = set()
        self._printed: dict[str, int] = {}
        self.follow: Callable[[SessionKey], None] = lambda _: None
        """Called with a terminal of the host's that is to be followed from now on."""

    def made(self, terminal: SessionKey, command: str, cwd: str | None) -> None:
        """Learn of a terminal of the host's."""
        del command, cwd
        self._ours.add(terminal)
        self._calls.acted = True

    def take(self, terminal: SessionKey, data: bytes, lost: int) -> None:
        """Show output of one of the host's."""
        self._printer.output(terminal[1], data, lost)

    def ended(self, terminal: SessionKey, end: ExitInfo) -> None:
        """Show how one of the host's ended."""
        self._printer.ended(terminal[1], end)

    def finished_by(self, params: Raw | UnsetType) -> list[SessionKey]:
        """Give the terminals of the tool call that a `session/update` says is over."""
        update = read(params)
        if update is None or update.call is None or text(update.fields.get("status")) not in _OVER:
            return []
        return [(update.session, terminal) for terminal in self._calls.get(update.call).terminals]

    def updated(self, notification: SessionNotification) -> None:
        """Show an update; one that is not as it should be is not shown."""
        try:
            update = read_update(notification.update)
        except RpcError:
            return
        self._printer.update(notification.update)
        if isinstance(update, OtherUpdate):
            self._other(update)
        else:
            self._call(notification, update)

    def _call(self, notification: SessionNotification, update: ToolCall | ToolCallUpdate) -> None:
        call = self._calls.take(update)
        meta = members(notification.update).get("_meta")
        self._printer.call(call)
        for terminal in call.terminals:
            key = notification.session_id, terminal
            if key in self._ours:
                self._ours.discard(key)
                self.follow(key)
        for note in from_meta(meta):
            self._note(note)

    def _other(self, update: OtherUpdate) -> None:
        fields = members(update.raw)
        if update.kind == _MESSAGE:
            block = members(fields.get("content"))
            if (said := text(block.get("text"))) is not None:
                self._printer.message(said)
            elif (kind := text(block.get("type"))) is not None:
                self._printer.message(f"[{kind}]")
        elif update.kind == "plan":
            self._printer.plan([_entry(item) for item in items(fields.get("entries"))])
        elif update.kind in V2_KINDS:
            for note in from_v2(update.kind, fields):
                self._note(note)

    def _note(self, note: TerminalUpdate) -> None:
        match note:
            case Output(terminal, data, whole):
                printed = self._printed.get(terminal, 0)
                if whole:
                    # A snapshot has what was printed already, as a rule.
                    data = data[printed:] if len(data) >= printed else data
                    self._printed[terminal] = len(note.data)
                else:
                    self._printed[terminal] = printed + len(data)
                self._printer.output(terminal, data, 0)
            case Exit(terminal, ExitInfo() as end):
                self._printer.ended(terminal, end)
            case Info() | Exit():
                pass


def _entry(item: Raw) -> tuple[str, str]:
    found = members(item)
    return text(found.get("content")) or "", text(found.get("status")) or "pending"
