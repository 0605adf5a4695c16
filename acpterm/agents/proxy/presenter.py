"""The interface of the presenters, which show an editor the terminals that the agent uses.

An editor that shows terminals which the agent runs itself has the capability
`_meta.terminal_output`. To it, the host's terminals are presented like the agent's own: with
`terminal_info` when a tool call first embeds a terminal, then `terminal_output` as the program
prints, and `terminal_exit`. An agent reports its own terminals in this form, which is passed on
unchanged, or in the form of ACP v2, which is converted. If the output of the agent's own terminal
is only in a tool call's `rawOutput`, it is sent as `terminal_output` as well.

Zed, which introduced this form, reads `terminal_info` only from a `tool_call`, and rejects a call
that embeds an unknown terminal. Most agents embed terminals in a `tool_call_update`. So an update
that embeds a new terminal is sent as a `tool_call` with the same id and all known members of the
call. Zed applies a second `tool_call` with the same id to the existing call.

To other editors, a terminal in a tool call's content becomes a console block with the terminal's
last lines, once the terminal has output; all other items of the content keep their place. While the
terminal prints, the presenter sends the call's complete content to the editor again and again, as
the protocol requires, but only when it has changed, and at most once per `RENDER_INTERVAL_S` for
each call. The agent's update that ends the call gets the content, too, and nothing follows it:
CodeCompanion and avante forget a call at its end, agent-shell stores the content of this update,
and acpx prints the call again for each later one. The presenter also stops when the agent sends
content of the call that embeds no terminal; it passes this content on unchanged.

An editor that appends content instead of replacing it gets a call's terminals only at the end of
the call, or of the turn.

Memory is bounded: the text of the oldest of more than `DISPLAYS_MAX` terminals is deleted, and the
oldest of more than `CALLS_MAX` calls keeps the content that was sent last.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

import trio
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
    without_terminals,
)
from acpterm.agents.proxy.capabilities import Capabilities
from acpterm.agents.proxy.display import Display
from acpterm.agents.session_update import (
    SessionKey,
    Update,
    embedded_terminal,
    encode_tool_call_update,
)
from acpterm.config import Settings
from acpterm.runtime.bounded_dict import BoundedDict

TERMINALS_MAX: Final = 1000
CALLS_MAX: Final = 1000
# Maximum size of a member of a tool call that is remembered, in bytes.
_MEMBER_BYTES_MAX: Final = 16 * 1024
# Bytes kept of the output of a terminal that is not shown yet: the last ones.
_PENDING_BYTES_MAX: Final = 64 * 1024

RENDER_INTERVAL_S: Final = 0.25
DISPLAYS_MAX: Final = 256


class _Call:
    """A tool call that embeds terminals.

    `content` has a `SessionKey` in place of each terminal, and `rendered` their text; `sent` is
    when it was sent last. If `ended`, no more updates are sent.
    """

    def __init__(self, content: list[Raw | SessionKey], sent: float, *, ended: bool) -> None:
        self.content = content
        self.terminals = [item for item in content if not isinstance(item, Raw)]
        self.sent = sent
        self.ended = ended
        self.changed = False
        self.rendered: list[Any] | None = None

    def note_status(self, update: Update) -> bool:
        """Set `ended` from the status in `update`, and return whether this is the end."""
        if "status" in update.fields:
            self.ended = update.ends_call
        return update.ends_call


class TextPresenter:
    """The `presenter.Presenter` for an editor that can show only terminals that it runs itself.

    `live` is false if the editor appends content: then terminals are shown only once. With
    `editor_has_terminals`, the editor runs the agent's terminals: those that neither the host has
    created nor the agent has reported are left unchanged. The others are shown as text.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        follow: Callable[[SessionKey], None],
        limit: int,
        lines: int,
        live: bool,
        bare: bool = False,
        editor_has_terminals: bool,
    ) -> None:
        self._clock = clock
        self._follow = follow
        self._limit = limit
        self._lines = lines
        self._live = live
        self._bare = bare
        self._editor_has_terminals = editor_has_terminals
        # The command of each terminal of the host, and whether the terminal is followed.
        self._ours: BoundedDict[SessionKey, tuple[str, bool]] = BoundedDict(CALLS_MAX)
        self._displays: BoundedDict[SessionKey, Display] = BoundedDict(DISPLAYS_MAX)
        self._calls: BoundedDict[SessionKey, _Call] = BoundedDict(CALLS_MAX)

    def on_created(self, terminal: SessionKey, command: str, cwd: str | None) -> None:
        del cwd
        self._ours[terminal] = command, False

    def translate(self, line: bytes, update: Update) -> list[bytes]:
        if update.kind in V2_KINDS:
            for change in from_v2(update.kind, update.fields):
                self._apply(update.session, change)
            return []
        if (call := update.tool_call) is None:
            return [line]
        for change in from_meta(update.fields.get("_meta")):
            self._apply(update.session, change)
        if (meta := without_terminals(update.fields.get("_meta"))) is not None:
            # agent-shell shows the output in `_meta`, too, and would show all of it twice.
            update = update.with_meta(meta)
            line = update.encode()
        key = update.session, call
        if "content" in update.fields:
            return [self._with_content(key, line, update)]
        return [self._without_content(key, line, update)]

    def _without_content(self, key: SessionKey, line: bytes, update: Update) -> bytes:
        call = self._calls.get(key)
        self._add_raw_output(call, update)
        if call is None or not call.note_status(update):
            return line
        call.changed = False
        call.rendered = self._render(self._unsent(call))
        # Empty content would hide the update's `rawOutput`.
        return update.encode(content=call.rendered) if call.rendered else line

    def _with_content(self, key: SessionKey, line: bytes, update: Update) -> bytes:
        content = self._parse_content(update.session, update.fields["content"])
        known = self._calls.pop(key, None)
        if content is None:
            return line
        call = _Call(content, self._clock(), ended=known is not None and known.ended)
        call.note_status(update)
        self._add_raw_output(call, update)
        self._calls[key] = call
        shows_terminals = self._live or call.ended
        shown = content if shows_terminals else [i for i in content if isinstance(i, Raw)]
        call.rendered = self._render(shown)
        return update.encode(content=call.rendered)

    def _unsent(self, call: _Call) -> list[Raw | SessionKey]:
        """Return the content of `call` that an update sends: an appending editor has the rest."""
        return call.content if self._live else [*call.terminals]

    def before_end(self, update: Update) -> tuple[list[bytes], list[SessionKey]]:
        call = self._calls.get((update.session, update.tool_call or ""))
        if "content" in update.fields:
            content = self._parse_content(update.session, update.fields["content"])
            call = _Call(content or [], 0, ended=True)
        return [], call.terminals if call else []

    def permission(self, params: dict[str, Raw]) -> tuple[list[bytes], dict[str, Any] | None]:
        session, tool = text(params.get("sessionId")), members(params.get("toolCall"))
        content = self._parse_content(session or "", tool.get("content"))
        if content is None:
            return [], None
        return [], {
            **params,
            "toolCall": {**tool, "content": self._render(content, even_silent=True)},
        }

    def on_output(self, terminal: SessionKey, data: bytes, lost: int) -> list[bytes]:
        if display := self._displays.get(terminal):
            display.feed(data, lost)
            self._mark_changed(terminal)
        return []

    def on_exit(self, terminal: SessionKey, end: ProgramExit) -> list[bytes]:
        if display := self._displays.get(terminal):
            display.finish(end)
            self._mark_changed(terminal)
        return []

    @property
    def next_render_at(self) -> float:
        if not self._live:
            return math.inf
        changed = (call.sent for call in self._calls.values() if call.changed)
        return min(changed, default=math.inf) + RENDER_INTERVAL_S

    def render(self, session: str | None = None) -> list[bytes]:
        now = self._clock()
        lines = []
        for key, call in self._calls.items():
            is_due = self._live and call.sent + RENDER_INTERVAL_S <= now
            if not call.changed or not (is_due or key[0] == session):
                continue
            call.changed = False
            call.ended = not self._live
            rendered = self._render(self._unsent(call))
            if rendered != call.rendered:
                call.rendered, call.sent = rendered, now
                lines.append(encode_tool_call_update(key, content=rendered))
        return lines

    def _apply(self, session: str, change: TerminalUpdate) -> None:
        key = session, change.terminal
        display = self._displays.get(key) or self._display(key)
        match change:
            case Info(_, _, command):
                display.command = command or display.command
            case OutputUpdate(_, data, whole):
                (display.replace if whole else display.feed)(data)
            case ExitUpdate(_, end):
                display.finish(end)
        self._mark_changed(key)

    def _display(self, key: SessionKey) -> Display:
        ours = self._ours.get(key)
        command, followed = ours or (None, True)
        is_ours = ours is not None
        display = self._displays[key] = Display(
            command, limit=self._limit, lines=self._lines, ours=is_ours, bare=self._bare
        )
        if not followed:
            self._ours[key] = command or "", True
            self._follow(key)
        return display

    def _parse_content(self, session: str, content: Raw | None) -> list[Raw | SessionKey] | None:
        """Return `content` with a `SessionKey` for each terminal to show as text; None if none."""
        parsed: list[Raw | SessionKey] = []
        for item in items(content):
            terminal = embedded_terminal(item)
            key = None if terminal is None else (session, terminal)
            if key is None or not self._is_shown_here(key):
                # Copied, because a Raw value keeps the whole message in memory.
                parsed.append(item.copy())
            else:
                if key not in self._displays:
                    self._display(key)
                parsed.append(key)
        return parsed if any(not isinstance(item, Raw) for item in parsed) else None

    def _is_shown_here(self, terminal: SessionKey) -> bool:
        known = terminal in self._ours or terminal in self._displays
        return known or not self._editor_has_terminals

    def _add_raw_output(self, call: _Call | None, update: Update) -> None:
        """Add the `rawOutput` of `update` to the agent's own terminal that `call` shows.

        If it shows several, it is unknown which of them printed the output.
        """
        keys = set(call.terminals if call else ())
        if len(keys) != 1 or (output := from_raw_output(update.fields.get("rawOutput"))) is None:
            return
        for key in keys - self._ours.keys():
            if display := self._displays.get(key):
                display.add_raw_output(output)
                self._mark_changed(key)

    def _render(
        self, content: Iterable[Raw | SessionKey], *, even_silent: bool = False
    ) -> list[Any]:
        rendered: list[Any] = []
        for item in content:
            if isinstance(item, Raw):
                rendered.append(item)
                continue
            display = self._displays.get(item)
            fence = "[output no longer kept]" if display is None else None
            if display is not None:
                fence = display.fence(even_silent=even_silent)
            if fence is not None:
                rendered.append({"type": "content", "content": {"type": "text", "text": fence}})
        return rendered

    def _mark_changed(self, terminal: SessionKey) -> None:
        for call in self._calls.values():
            call.changed |= not call.ended and terminal in call.terminals


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


class Presenter(Protocol):
    """Turns the agent's updates, in order, and the terminals' output into lines for the editor.

    It does no I/O. The caller sends a line that a method returns to the editor at once.
    """

    @property
    def next_render_at(self) -> float:
        """When to call `render` next, by trio's clock; `math.inf` if no lines are delayed."""

    def on_created(self, terminal: SessionKey, command: str, cwd: str | None) -> None:
        """Record a terminal that the host has created."""

    def translate(self, line: bytes, update: Update) -> list[bytes]:
        """Return the lines to send in place of `line`, the message with `update`."""

    def before_end(self, update: Update) -> tuple[list[bytes], Iterable[SessionKey]]:
        """Prepare for `update`, the end of a tool call, which is passed to `translate` afterwards.

        Return the lines to send before, and the call's terminals, whose output has to be passed to
        `on_output` before `translate`.
        """

    def permission(self, params: dict[str, Raw]) -> tuple[list[bytes], dict[str, Any] | None]:
        """Present the terminals in the tool call of a `session/request_permission`.

        Return the lines to send before the request, and the new params; None to leave them as they
        are.
        """

    def on_output(self, terminal: SessionKey, data: bytes, lost: int) -> list[bytes]:
        """Take output of a terminal of the host, before which `lost` bytes are missing."""

    def on_exit(self, terminal: SessionKey, end: ProgramExit) -> list[bytes]:
        """Take the exit of a terminal of the host."""

    def render(self, session: str | None = None) -> list[bytes]:
        """Return the delayed lines that are due, and those of `session` even before."""


def new_presenter(
    editor: Capabilities, settings: Settings, *, ours: bool, follow: Callable[[SessionKey], None]
) -> Presenter:
    """Return the presenter for an editor; `ours`: the host runs the agent's terminals.

    `follow` is called when a terminal of the host is first shown: from then on, its output has to
    be passed to `on_output`.
    """
    if editor.shows_agent_terminals:
        return TerminalPresenter(follow=follow)
    return TextPresenter(
        clock=trio.current_time,
        follow=follow,
        limit=settings.shown_bytes,
        lines=settings.shown_lines,
        live=editor.replaces_content,
        bare=editor.shows_beginnings,
        editor_has_terminals=editor.has_terminals and not ours,
    )
