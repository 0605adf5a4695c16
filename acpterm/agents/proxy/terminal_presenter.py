"""The presenter for an editor that shows terminals which the agent runs itself.

Such an editor has the capability `_meta.terminal_output`. To it, the host's terminals are presented
like the agent's own: with `terminal_info` when a tool call first embeds a terminal, then
`terminal_output` as the program prints, and `terminal_exit`. An agent reports its own terminals in
this form, which is passed on unchanged, or in the form of ACP v2, which is converted. If the output
of the agent's own terminal is only in a tool call's `rawOutput`, it is sent as `terminal_output` as
well.

Zed, which introduced this form, reads `terminal_info` only from a `tool_call`, and rejects a call
that embeds an unknown terminal. Most agents embed terminals in a `tool_call_update`. So an update
that embeds a new terminal is sent as a `tool_call` with the same id and all known members of the
call. Zed applies a second `tool_call` with the same id to the existing call.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Raw

from acpterm.acp.raw_json import items, members, text
from acpterm.acp.terminal_updates import (
    V2_KINDS,
    ExitUpdate,
    Info,
    MetaEncoder,
    OutputUpdate,
    ProgramExit,
    TerminalUpdate,
    from_meta,
    from_raw_output,
    from_v2,
)
from acpterm.agents.session_update import (
    SessionKey,
    Update,
    embedded_terminal,
    encode_tool_call_update,
)
from acpterm.runtime.bounded_dict import BoundedDict

TERMINALS_MAX: Final = 1000
CALLS_MAX: Final = 1000
# Maximum size of a member of a tool call that is remembered, in bytes.
_MEMBER_BYTES_MAX: Final = 16 * 1024
# Bytes kept of the output of a terminal that is not shown yet: the last ones.
_PENDING_BYTES_MAX: Final = 64 * 1024


class _Terminal:
    """A terminal of the host if `ours`, else one that the agent runs itself.

    `call` has introduced it to the editor; until then, `pending` and `end` keep the output and the
    exit of an agent's terminal.
    """

    def __init__(self, terminal: str, cwd: str | None, *, ours: bool) -> None:
        self.cwd = cwd
        self.ours: Final = ours
        self.call: SessionKey | None = None
        self.pending = b""
        self.end: ProgramExit | None = None
        self.encoder: Final = MetaEncoder(terminal)

    def output(self, data: bytes, *, lost: int = 0, replace: bool = False) -> list[bytes]:
        """Return the lines to send; none if the editor does not know the terminal."""
        return self._lines(self.encoder.output(data, lost=lost, replace=replace))

    def ended(self, end: ProgramExit) -> list[bytes]:
        return self._lines(self.encoder.ended(end))

    def _lines(self, metas: Iterator[dict[str, Any]]) -> list[bytes]:
        if self.call is None:
            return []
        return [encode_tool_call_update(self.call, _meta=meta) for meta in metas]


class TerminalPresenter:
    """The `presenter.Presenter` for an editor that shows terminals which the agent runs itself."""

    next_render_at: float = math.inf

    def __init__(self, *, follow: Callable[[SessionKey], None]) -> None:
        self._follow = follow
        self._terminals: BoundedDict[SessionKey, _Terminal] = BoundedDict(TERMINALS_MAX)
        self._calls: BoundedDict[SessionKey, dict[str, Any]] = BoundedDict(CALLS_MAX)
        # The agent's own terminals without output so far, and the calls that introduced them.
        self._silent: BoundedDict[SessionKey, SessionKey] = BoundedDict(TERMINALS_MAX)

    def on_created(self, terminal: SessionKey, command: str, cwd: str | None) -> None:
        del command
        self._terminals[terminal] = _Terminal(terminal[1], cwd, ours=True)

    def translate(self, line: bytes, update: Update) -> list[bytes]:
        if update.kind in V2_KINDS:
            changes = from_v2(update.kind, update.fields)
            return [line for change in changes for line in self._apply(update.session, change)]
        if update.tool_call is None:
            return [line]
        key = update.session, update.tool_call
        known = self._remember(key, update)
        new = self._new_in(update)
        if not new:
            return [*self._raw_output(key, update), line]
        *others, last = new
        lines = []
        # A message has room for the `terminal_info` of one terminal.
        for terminal in others:
            fields = {**known, "_meta": self._info(terminal)}
            lines.append(Update(update.session, "tool_call", fields, update.params).encode())
        fields = {**known, **_without_nulls(update.fields), "sessionUpdate": "tool_call"}
        fields["_meta"] = {**members(update.fields.get("_meta")), **self._info(last)}
        lines.append(Update(update.session, "tool_call", fields, update.params).encode())
        for terminal in new:
            state = self._terminals[terminal]
            state.call = key
            lines += state.output(state.pending)
            if state.end is not None:
                lines += state.ended(state.end)
            state.pending, state.end = b"", None
            if state.ours:
                self._follow(terminal)
        return lines

    def before_end(self, update: Update) -> tuple[list[bytes], list[SessionKey]]:
        """Return the lines that introduce the call's new terminals, and all its terminals."""
        names = ("toolCallId", "content")
        fields = {name: update.fields[name] for name in names if name in update.fields}
        lines = self._introduce(update._replace(fields=fields))
        key = update.session, update.tool_call
        return lines, [terminal for terminal, state in self._terminals.items() if state.call == key]

    def permission(self, params: dict[str, Raw]) -> tuple[list[bytes], None]:
        session, fields = text(params.get("sessionId")), members(params.get("toolCall"))
        only = {name: params[name] for name in ("sessionId",) if name in params}
        return self._introduce(Update(session or "", "tool_call_update", fields, only)), None

    def _introduce(self, update: Update) -> list[bytes]:
        if update.tool_call is None or not self._new_in(update):
            return []
        return self.translate(b"", update)

    def on_output(self, terminal: SessionKey, data: bytes, lost: int) -> list[bytes]:
        state = self._terminals.get(terminal)
        return state.output(data, lost=lost) if state else []

    def on_exit(self, terminal: SessionKey, end: ProgramExit) -> list[bytes]:
        state = self._terminals.get(terminal)
        return state.ended(end) if state else []

    def render(self, session: str | None = None) -> list[bytes]:
        del session
        return []

    def _apply(self, session: str, change: TerminalUpdate) -> list[bytes]:
        key = session, change.terminal
        state = self._terminals.get(key)
        if state is None:
            state = self._terminals[key] = _Terminal(change.terminal, None, ours=False)
        match change:
            case Info(_, cwd, _):
                state.cwd = cwd or state.cwd
            case OutputUpdate(_, data, whole):
                if state.call is not None:
                    return state.output(data, replace=whole)
                pending = data if whole else state.pending + data
                state.pending = pending[-_PENDING_BYTES_MAX:]
            case ExitUpdate(_, end):
                if state.call is not None:
                    return state.ended(end) if end is not None else []
                state.end = end
        return []

    def _raw_output(self, call: SessionKey, update: Update) -> list[bytes]:
        """Return the `rawOutput` of `update` as output of the terminal that it must come from.

        That is the agent's own terminal without output so far that `call` has introduced.
        """
        for change in from_meta(update.fields.get("_meta")):
            terminal = update.session, change.terminal
            if isinstance(change, OutputUpdate):
                self._silent.pop(terminal, None)
            elif isinstance(change, Info):
                self._silent[terminal] = call
        output = from_raw_output(update.fields.get("rawOutput"))
        silent = [terminal for terminal, shown_by in self._silent.items() if shown_by == call]
        if output is None or len(silent) != 1:
            return []
        del self._silent[silent[0]]
        meta = {"terminal_output": {"terminal_id": silent[0][1], "data": output}}
        return [encode_tool_call_update(call, _meta=meta)]

    def _new_in(self, update: Update) -> list[SessionKey]:
        """Return the terminals that an update embeds and that the editor does not know yet."""
        embedded = [embedded_terminal(item) for item in items(update.fields.get("content"))]
        keys = dict.fromkeys((update.session, id_) for id_ in embedded if id_ is not None)
        return [key for key in keys if (t := self._terminals.get(key)) and t.call is None]

    def _remember(self, key: SessionKey, update: Update) -> dict[str, Any]:
        """Merge an update into the known members of a tool call, and return them."""
        known = self._calls.pop(key, None)
        if known is None:
            known = {"sessionUpdate": "tool_call", "toolCallId": key[1], "title": "terminal"}
        for name, value in _without_nulls(update.fields).items():
            if name in ("sessionUpdate", "_meta", "content"):
                continue
            if len(bytes(value)) <= _MEMBER_BYTES_MAX:
                # Copied, because a Raw value keeps the whole message in memory.
                known[name] = value.copy()
        self._calls[key] = known
        return known

    def _info(self, terminal: SessionKey) -> dict[str, Any]:
        state = self._terminals[terminal]
        return state.encoder.info(state.cwd or None)


def _without_nulls(fields: dict[str, Raw]) -> dict[str, Raw]:
    # In an update, null clears a member; a complete `tool_call` leaves it out.
    return {name: value for name, value in fields.items() if bytes(value) != b"null"}
