"""Passes the events of one turn on to a printer: the agent's updates, the output of terminals.

A terminal is shown as soon as a tool call embeds it. The output of the host's terminals is polled;
the agent reports the output of its own terminals in its updates (`acp.terminal_updates`).
"""

from typing import Final

from msgspec import Raw, UnsetType

from acpterm.acp.raw_json import items, members, text
from acpterm.acp.session import (
    OtherUpdate,
    SessionNotification,
    ToolCall,
    ToolCallUpdate,
    read_update,
)
from acpterm.acp.terminal_updates import (
    V2_KINDS,
    ExitUpdate,
    Info,
    OutputUpdate,
    ProgramExit,
    TerminalUpdate,
    from_meta,
    from_v2,
)
from acpterm.agents.prompt.printer import TurnPrinter
from acpterm.agents.prompt.tool_calls import ShownToolCalls
from acpterm.agents.session_update import SessionKey, parse_update
from acpterm.jsonrpc import RpcError

_MESSAGE_KIND: Final = "agent_message_chunk"


class Turn:
    def __init__(self, printer: TurnPrinter, calls: ShownToolCalls) -> None:
        self._printer = printer
        self._calls = calls
        # The host's terminals that no tool call has embedded yet.
        self._not_shown: set[SessionKey] = set()
        # Bytes printed of each of the agent's own terminals.
        self._printed: dict[str, int] = {}

    def on_created(self, terminal: SessionKey, command: str, cwd: str | None) -> None:
        """Record a new terminal of the host, to be shown once a tool call embeds it."""
        del command, cwd
        self._not_shown.add(terminal)
        self._calls.acted = True

    def on_output(self, terminal: SessionKey, data: bytes, lost: int) -> None:
        self._printer.output(terminal[1], data, lost)

    def on_exit(self, terminal: SessionKey, end: ProgramExit) -> None:
        self._printer.exited(terminal[1], end)

    def terminals_finished_by(self, params: Raw | UnsetType) -> list[SessionKey]:
        """Return the terminals in the tool call that a `session/update` reports as finished."""
        update = parse_update(params)
        if update is None or update.tool_call is None or not update.ends_call:
            return []
        call = self._calls.get(update.tool_call)
        return [(update.session, terminal) for terminal in call.terminals]

    def on_update(self, notification: SessionNotification) -> list[SessionKey]:
        """Print an update of the agent; return the host's terminals that are new in it."""
        try:
            update = read_update(notification.update)
        except RpcError:
            return []
        self._printer.update(notification.update)
        if isinstance(update, OtherUpdate):
            self._on_other_update(update)
            return []
        return self._on_tool_call(notification, update)

    def _on_tool_call(
        self, notification: SessionNotification, update: ToolCall | ToolCallUpdate
    ) -> list[SessionKey]:
        call = self._calls.update(update)
        meta = members(notification.update).get("_meta")
        # The end of a terminal belongs above the end of the call, also if both are in this update.
        self._printer.begin(call)
        for change in from_meta(meta):
            self._apply(change)
        self._printer.tool_call(call)
        embedded = {(notification.session_id, terminal): None for terminal in call.terminals}
        new = [key for key in embedded if key in self._not_shown]
        self._not_shown.difference_update(new)
        return new

    def _on_other_update(self, update: OtherUpdate) -> None:
        fields = members(update.raw)
        if update.kind == _MESSAGE_KIND:
            block = members(fields.get("content"))
            if (message := text(block.get("text"))) is not None:
                self._printer.message(message)
            elif (kind := text(block.get("type"))) is not None:
                self._printer.message(f"[{kind}]")
        elif update.kind == "plan":
            self._printer.plan([_entry(item) for item in items(fields.get("entries"))])
        elif update.kind in V2_KINDS:
            for change in from_v2(update.kind, fields):
                self._apply(change)

    def _apply(self, change: TerminalUpdate) -> None:
        match change:
            case OutputUpdate(terminal, data, whole):
                printed = self._printed.get(terminal, 0)
                if whole:
                    # A snapshot usually starts with the bytes that were printed already.
                    data = data[printed:] if len(data) >= printed else data
                    self._printed[terminal] = len(change.data)
                else:
                    self._printed[terminal] = printed + len(data)
                self._printer.output(terminal, data, 0)
            case ExitUpdate(terminal, ProgramExit() as end):
                self._printer.exited(terminal, end)
            case Info() | ExitUpdate():
                pass


def _entry(item: Raw) -> tuple[str, str]:
    fields = members(item)
    return text(fields.get("content")) or "", text(fields.get("status")) or "pending"
