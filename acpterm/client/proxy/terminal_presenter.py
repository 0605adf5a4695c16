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

import codecs
import math
from collections.abc import Callable
from typing import Any, Final

from msgspec import Raw

from acpterm.acp.raw_json import items, members, text
from acpterm.acp.terminal_updates import (
    V2_KINDS,
    Exit,
    Info,
    Output,
    ProgramExit,
    TerminalUpdate,
    from_meta,
    from_raw_output,
    from_v2,
)
from acpterm.client.session_update import (
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
# Clears the screen and the scrollback, and moves the cursor home.
_CLEAR: Final = b"\x1b[2J\x1b[3J\x1b[H"


class _Terminal:
    """A terminal of the host if `ours` is true, otherwise one that the agent runs itself.

    `cwd` is the terminal's directory; None if unknown. `call` is the tool call that introduced the
    terminal to the editor; None before that. For a terminal of the agent, `pending` is the output
    that was not sent yet, and `end` is the exit if it was not sent yet, else None. `decoder`
    decodes the output as UTF-8.
    """

    def __init__(self, cwd: str | None, *, ours: bool) -> None:
        self.cwd = cwd
        self.ours: Final = ours
        self.call: SessionKey | None = None
        self.pending = b""
        self.end: ProgramExit | None = None
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")


class TerminalPresenter:
    """The `presenter.Presenter` for an editor that shows terminals which the agent runs itself.

    `presenter.Presenter` describes the methods. `follow` is called with each terminal of the host
    when the terminal is first shown.
    """

    next_render_at: float = math.inf

    def __init__(self, *, follow: Callable[[SessionKey], None]) -> None:
        self._follow = follow
        self._terminals: BoundedDict[SessionKey, _Terminal] = BoundedDict(TERMINALS_MAX)
        self._calls: BoundedDict[SessionKey, dict[str, Any]] = BoundedDict(CALLS_MAX)
        # The agent's own terminals without output so far, and the calls that introduced them.
        self._silent: BoundedDict[SessionKey, SessionKey] = BoundedDict(TERMINALS_MAX)

    def on_created(self, terminal: SessionKey, command: str, cwd: str | None) -> None:
        """Record a new terminal of the host."""
        del command
        self._terminals[terminal] = _Terminal(cwd, ours=True)

    def translate(self, line: bytes, update: Update) -> list[bytes]:
        """Return the lines to send to the editor in place of `line`, the message with `update`."""
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
            lines += self._send_pending(terminal, state)
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
        """Return the lines that introduce the tool call's terminals to the editor, and None.

        None means that the params of the `session/request_permission` itself are passed on
        unchanged.
        """
        session, fields = text(params.get("sessionId")), members(params.get("toolCall"))
        only = {name: params[name] for name in ("sessionId",) if name in params}
        return self._introduce(Update(session or "", "tool_call_update", fields, only)), None

    def _introduce(self, update: Update) -> list[bytes]:
        """Return the lines that introduce terminals that the editor does not know yet."""
        if update.tool_call is None or not self._new_in(update):
            return []
        return self.translate(b"", update)

    def on_output(self, terminal: SessionKey, data: bytes, lost: int) -> list[bytes]:
        """Return the `terminal_output` line for output of one of the host's terminals.

        Return no line if the editor does not know the terminal, or the output is not yet a complete
        character.
        """
        state = self._terminals.get(terminal)
        if state is None or state.call is None:
            return []
        if lost:
            data = b"\r\n[%d bytes are not shown]\r\n" % lost + data
        decoded = state.decoder.decode(data)
        return [_encode(state.call, terminal, "terminal_output", data=decoded)] if decoded else []

    def on_exit(self, terminal: SessionKey, end: ProgramExit) -> list[bytes]:
        """Return the `terminal_exit` line for the exit of one of the host's terminals.

        If the output ended in the middle of a character, first return a line with U+FFFD in
        place of the character. Return no lines if the editor does not know the terminal.
        """
        state = self._terminals.get(terminal)
        if state is None or state.call is None:
            return []
        rest = state.decoder.decode(b"", final=True)
        lines = [_encode(state.call, terminal, "terminal_output", data=rest)] if rest else []
        status = {"exit_code": end.code, "signal": end.signal}
        return [*lines, _encode(state.call, terminal, "terminal_exit", **status)]

    def render(self, session: str | None = None) -> list[bytes]:
        """Return no lines, since this presenter delays none."""
        del session
        return []

    def _apply(self, session: str, change: TerminalUpdate) -> list[bytes]:
        """Apply an update of an agent's own terminal; return the lines to send to the editor.

        Until a tool call has introduced the terminal to the editor, keep the terminal's output and
        exit, and return no lines.
        """
        key = session, change.terminal
        state = self._terminals.get(key)
        if state is None:
            state = self._terminals[key] = _Terminal(None, ours=False)
        match change:
            case Info(_, cwd, _):
                state.cwd = cwd or state.cwd
            case Output(_, data, whole):
                if whole:
                    state.pending, data = b"", _CLEAR + data if state.call else data
                state.pending = (state.pending + data)[-_PENDING_BYTES_MAX:]
            case Exit(_, end):
                state.end = end
        return self._send_pending(key, state) if state.call is not None else []

    def _send_pending(self, key: SessionKey, state: _Terminal) -> list[bytes]:
        data, state.pending = state.pending, b""
        lines = self.on_output(key, data, 0) if data else []
        if state.end is not None:
            lines += self.on_exit(key, state.end)
            state.end = None
        return lines

    def _raw_output(self, call: SessionKey, update: Update) -> list[bytes]:
        """Return a line that sends the `rawOutput` of `update` as output of a terminal.

        The terminal must be one of the agent's own, introduced by the tool call `call`, without
        output so far. Return no line if there is no `rawOutput`, no such terminal, or several.
        """
        for change in from_meta(update.fields.get("_meta")):
            terminal = update.session, change.terminal
            if isinstance(change, Output):
                self._silent.pop(terminal, None)
            elif isinstance(change, Info):
                self._silent[terminal] = call
        output = from_raw_output(update.fields.get("rawOutput"))
        silent = [terminal for terminal, shown_by in self._silent.items() if shown_by == call]
        if output is None or len(silent) != 1:
            return []
        del self._silent[silent[0]]
        return [_encode(call, silent[0], "terminal_output", data=output)]

    def _new_in(self, update: Update) -> list[SessionKey]:
        """Return the terminals that an update embeds and that were not introduced to the editor."""
        embedded = [embedded_terminal(item) for item in items(update.fields.get("content"))]
        keys = dict.fromkeys((update.session, id_) for id_ in embedded if id_ is not None)
        return [key for key in keys if (t := self._terminals.get(key)) and t.call is None]

    def _remember(self, key: SessionKey, update: Update) -> dict[str, Any]:
        """Merge an update into the known members of the tool call `key`; return these members."""
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
        info = {"terminal_id": terminal[1]}
        if cwd := self._terminals[terminal].cwd:
            info["cwd"] = cwd
        return {"terminal_info": info}


def _without_nulls(fields: dict[str, Raw]) -> dict[str, Raw]:
    """Return `fields` without the members that are null.

    In an update, null clears a member; in a complete `tool_call`, such a member is left out.
    """
    return {name: value for name, value in fields.items() if bytes(value) != b"null"}


def _encode(call: SessionKey, terminal: SessionKey, kind: str, **fields: Any) -> bytes:
    return encode_tool_call_update(call, _meta={kind: {"terminal_id": terminal[1], **fields}})
