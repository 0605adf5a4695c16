"""Terminals for an editor that shows those which an agent has: ours pass for the agent's.

Such an editor has said `_meta.terminal_output`. It is told of each of our terminals when a tool
call first embeds it (`terminal_info`), then of its output as it comes (`terminal_output`), and of
its end (`terminal_exit`). An agent's own terminals of that kind pass through untouched; those of
ACP v2 are put into the same form. Where an agent has the output of its own terminal only in the raw
output of the tool call, that is sent as `terminal_output` as well.

Zed, from which this form comes, takes `terminal_info` from a `tool_call` alone, and refuses a call
that embeds a terminal it has not been told of. Most agents embed in a `tool_call_update`. So that
becomes a `tool_call` of the same id with all that is known of the call: Zed takes it for the same.
"""

import codecs
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from msgspec import Raw

from acpterm.acp.raw_json import items, members, text
from acpterm.acp.terminal_updates import (
    V2_KINDS,
    Exit,
    ExitInfo,
    Info,
    Output,
    TerminalUpdate,
    from_meta,
    from_raw_output,
    from_v2,
)
from acpterm.client.update import SessionKey, Update, terminal_in, tool_call_update

TERMINALS_MAX: Final = 1000
CALLS_MAX: Final = 1000
# Bytes kept of what is known of a call, a member each, and of output that nobody shows yet.
_MEMBER: Final = 16 * 1024
_PENDING: Final = 64 * 1024
# What clears a terminal: screen, scrollback and the cursor's place.
_CLEAR: Final = b"\x1b[2J\x1b[3J\x1b[H"


class _Terminal:
    """One that the editor is told of: `call` shows it, once it has been told."""

    def __init__(self, cwd: str | None, *, ours: bool) -> None:
        self.cwd = cwd
        self.ours: Final = ours
        self.call: SessionKey | None = None
        self.pending = b""
        self.end: ExitInfo | None = None
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")


class TerminalPresenter:
    """What is shown to one editor. See `showing.Showing`."""

    next_render_at: float = math.inf

    def __init__(self, *, follow: Callable[[SessionKey], None]) -> None:
        self._follow = follow
        self._terminals: OrderedDict[SessionKey, _Terminal] = OrderedDict()
        self._calls: OrderedDict[SessionKey, dict[str, Any]] = OrderedDict()
        # The agent's own that have no output yet, and the calls that introduced them.
        self._silent: OrderedDict[SessionKey, SessionKey] = OrderedDict()

    def on_created(self, terminal: SessionKey, command: str, cwd: str | None) -> None:
        """Learn of a terminal of ours."""
        del command
        self._add(terminal, _Terminal(cwd, ours=True))

    def translate(self, line: bytes, update: Update) -> list[bytes]:
        """Give what the editor is sent for an update of the agent's."""
        if update.kind in V2_KINDS:
            notes = from_v2(update.kind, update.fields)
            return [more for note in notes for more in self._note(update.session, note)]
        if update.call is None:
            return [line]
        key = update.session, update.call
        known = self._remember(key, update)
        new = self._new_in(update)
        if not new:
            return [*self._raw_output(key, update), line]
        *others, last = new
        lines = []
        # A message tells of one terminal.
        for terminal in others:
            told = {**known, "_meta": self._info(terminal)}
            lines.append(Update(update.session, "tool_call", told, update.params).line())
        fields = {**known, **_said(update.fields), "sessionUpdate": "tool_call"}
        fields["_meta"] = _with(update.fields.get("_meta"), self._info(last))
        lines.append(Update(update.session, "tool_call", fields, update.params).line())
        for terminal in new:
            found = self._terminals[terminal]
            found.call = key
            lines += self._send_pending(terminal, found)
            if found.ours:
                self._follow(terminal)
        return lines

    def permission(self, params: dict[str, Raw]) -> tuple[list[bytes], None]:
        """Give what tells of terminals that a permission's tool call is the first to show."""
        session, fields = text(params.get("sessionId")), members(params.get("toolCall"))
        update = Update(session or "", "tool_call_update", fields, {})
        if update.call is None or not self._new_in(update):
            return [], None
        return self.translate(b"", update._replace(params={"sessionId": params["sessionId"]})), None

    def on_output(self, terminal: SessionKey, data: bytes, lost: int) -> list[bytes]:
        """Give what tells the editor of output of a terminal of ours."""
        found = self._terminals.get(terminal)
        if found is None or found.call is None:
            return []
        if lost:
            data = b"\r\n[%d bytes are not shown]\r\n" % lost + data
        shown = found.decoder.decode(data)
        return [_tell(found.call, terminal, "terminal_output", data=shown)] if shown else []

    def on_exit(self, terminal: SessionKey, end: ExitInfo) -> list[bytes]:
        """Give what tells the editor of the end of a terminal of ours."""
        found = self._terminals.get(terminal)
        if found is None or found.call is None:
            return []
        rest = found.decoder.decode(b"", final=True)
        lines = [_tell(found.call, terminal, "terminal_output", data=rest)] if rest else []
        how = {"exit_code": end.code, "signal": end.signal}
        return [*lines, _tell(found.call, terminal, "terminal_exit", **how)]

    def render(self, session: str | None = None) -> list[bytes]:
        """Nothing waits to be shown here."""
        del session
        return []

    def _note(self, session: str, note: TerminalUpdate) -> list[bytes]:
        key = session, note.terminal
        found = self._terminals.get(key)
        if found is None:
            found = _Terminal(None, ours=False)
            self._add(key, found)
        match note:
            case Info(_, cwd, _):
                found.cwd = cwd or found.cwd
            case Output(_, data, whole):
                if whole:
                    found.pending, data = b"", _CLEAR + data if found.call else data
                found.pending = (found.pending + data)[-_PENDING:]
            case Exit(_, end):
                found.end = end
        return self._send_pending(key, found) if found.call is not None else []

    def _send_pending(self, key: SessionKey, found: _Terminal) -> list[bytes]:
        data, found.pending = found.pending, b""
        lines = self.on_output(key, data, 0) if data else []
        if found.end is not None:
            lines += self.on_exit(key, found.end)
            found.end = None
        return lines

    def _raw_output(self, call: SessionKey, update: Update) -> list[bytes]:
        """Return the raw output of a call as that of the agent's own terminal that has none."""
        for note in from_meta(update.fields.get("_meta")):
            terminal = update.session, note.terminal
            if isinstance(note, Output):
                self._silent.pop(terminal, None)
            elif isinstance(note, Info):
                self._silent[terminal] = call
        while len(self._silent) > TERMINALS_MAX:
            self._silent.popitem(last=False)
        output = from_raw_output(update.fields.get("rawOutput"))
        silent = [terminal for terminal, shown in self._silent.items() if shown == call]
        if output is None or len(silent) != 1:
            return []
        del self._silent[silent[0]]
        return [_tell(call, silent[0], "terminal_output", data=output)]

    def _add(self, key: SessionKey, terminal: _Terminal) -> None:
        self._terminals[key] = terminal
        while len(self._terminals) > TERMINALS_MAX:
            self._terminals.popitem(last=False)

    def _new_in(self, update: Update) -> list[SessionKey]:
        """Give the terminals that this update shows and that the editor has not been told of."""
        embedded = [terminal_in(item) for item in items(update.fields.get("content"))]
        keys = dict.fromkeys((update.session, found) for found in embedded if found is not None)
        return [key for key in keys if (t := self._terminals.get(key)) and t.call is None]

    def _remember(self, key: SessionKey, update: Update) -> dict[str, Any]:
        """Take what an update says of its tool call; give all that is known of it."""
        known = self._calls.pop(key, None)
        if known is None:
            known = {"sessionUpdate": "tool_call", "toolCallId": key[1], "title": "terminal"}
        for name, value in _said(update.fields).items():
            if name not in ("sessionUpdate", "_meta", "content") and len(bytes(value)) <= _MEMBER:
                # A copy: it refers to the whole message otherwise, and keeps it.
                known[name] = value.copy()
        self._calls[key] = known
        while len(self._calls) > CALLS_MAX:
            self._calls.popitem(last=False)
        return known

    def _info(self, terminal: SessionKey) -> dict[str, Any]:
        info = {"terminal_id": terminal[1]}
        if cwd := self._terminals[terminal].cwd:
            info["cwd"] = cwd
        return {"terminal_info": info}


def _said(fields: dict[str, Raw]) -> dict[str, Raw]:
    """Leave out what is null: in a `tool_call` there is nothing to clear."""
    return {name: value for name, value in fields.items() if bytes(value) != b"null"}


def _with(meta: Raw | None, more: dict[str, Any]) -> dict[str, Any]:
    return {**members(meta), **more}


def _tell(call: SessionKey, terminal: SessionKey, what: str, **more: Any) -> bytes:
    return tool_call_update(call, _meta={what: {"terminal_id": terminal[1], **more}})
