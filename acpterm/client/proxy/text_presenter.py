"""Terminals for an editor that cannot show any: as text in the tool calls that embed them.

A terminal in a tool call's content becomes a console block with its last lines (`display`), once it
has output; all else in the content keeps its place. While it prints, the call's content is sent
again, whole, as the protocol has it: at most once in `PAUSE` seconds a call, and only when it looks
different. A call is remembered while it shows a terminal; its last content is the final one.

The rule for what is bounded: a display holds a limited text, the oldest displays and calls are
forgotten, and an agent's update is never held back.
"""

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
from acpterm.client.proxy.display import Display
from acpterm.client.update import SessionKey, Update, terminal_in, tool_call_update

RENDER_INTERVAL_S: Final = 0.25
DISPLAYS_MAX: Final = 256
CALLS_MAX: Final = 1000


class _Call:
    """A tool call that shows terminals: what is in it, and when and how it was sent last."""

    def __init__(self, content: list[Raw | SessionKey], sent: float) -> None:
        self.content = content
        self.sent = sent
        self.looked: list[Any] | None = None


class TextPresenter:
    """What is shown to one editor. See `showing.Showing`."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        follow: Callable[[SessionKey], None],
        limit: int,
        lines: int,
        editor_has_terminals: bool,
    ) -> None:
        self._clock = clock
        self._follow = follow
        self._limit = limit
        self._lines = lines
        self._editor_has_terminals = editor_has_terminals
        # Command, and whether it has been followed, of those that the host has.
        self._ours: OrderedDict[SessionKey, tuple[str, bool]] = OrderedDict()
        self._displays: OrderedDict[SessionKey, Display] = OrderedDict()
        self._calls: OrderedDict[SessionKey, _Call] = OrderedDict()
        self._shown_in: dict[SessionKey, set[SessionKey]] = {}
        self._dirty: dict[SessionKey, None] = {}

    def on_created(self, terminal: SessionKey, command: str, cwd: str | None) -> None:
        """Learn of a terminal of ours."""
        del cwd
        self._ours[terminal] = command, False
        while len(self._ours) > CALLS_MAX:
            self._ours.popitem(last=False)

    def translate(self, line: bytes, update: Update) -> list[bytes]:
        """Give what the editor is sent for an update of the agent's."""
        if update.kind in V2_KINDS:
            for note in from_v2(update.kind, update.fields):
                self._note(update.session, note)
            return []
        if update.call is None:
            return [line]
        for note in from_meta(update.fields.get("_meta")):
            self._note(update.session, note)
        key = update.session, update.call
        if "content" not in update.fields:
            self._take_raw_output(self._calls.get(key), update)
            return [line]
        content = self._content(update.session, update.fields["content"])
        self._forget(key)
        if content is None:
            return [line]
        call = self._calls[key] = _Call(content, self._clock())
        self._take_raw_output(call, update)
        for item in content:
            if not isinstance(item, Raw):
                self._shown_in.setdefault(item, set()).add(key)
        while len(self._calls) > CALLS_MAX:
            self._forget(next(iter(self._calls)))
        call.looked = self._look(call.content)
        return [update.line(content=call.looked)]

    def permission(self, params: dict[str, Raw]) -> tuple[list[bytes], dict[str, Any] | None]:
        """Give the params of a `session/request_permission` with terminals as text, if it has any.

        Its tool call is for the person to decide on, and not followed.
        """
        session, tool = text(params.get("sessionId")), members(params.get("toolCall"))
        content = self._content(session or "", tool.get("content"))
        if content is None:
            return [], None
        return [], {
            **params,
            "toolCall": {**tool, "content": self._look(content, even_silent=True)},
        }

    def on_output(self, terminal: SessionKey, data: bytes, lost: int) -> list[bytes]:
        """Take output of a terminal of ours."""
        if display := self._displays.get(terminal):
            display.feed(data, lost)
            self._changed(terminal)
        return []

    def on_exit(self, terminal: SessionKey, end: ExitInfo) -> list[bytes]:
        """Take the end of a terminal of ours."""
        if display := self._displays.get(terminal):
            display.finish(end)
            self._changed(terminal)
        return []

    @property
    def next_render_at(self) -> float:
        """When `paint` has something to give next; `math.inf` for not before more comes."""
        return min(
            (self._calls[key].sent + RENDER_INTERVAL_S for key in self._dirty), default=math.inf
        )

    def render(self, session: str | None = None) -> list[bytes]:
        """Give the tool calls that look different now and are due; all of `session`'s at once."""
        now = self._clock()
        lines = []
        for key in list(self._dirty):
            call = self._calls[key]
            if key[0] != session and call.sent + RENDER_INTERVAL_S > now:
                continue
            del self._dirty[key]
            look = self._look(call.content)
            if look != call.looked:
                call.looked, call.sent = look, now
                lines.append(tool_call_update(key, content=look))
        return lines

    def _note(self, session: str, note: TerminalUpdate) -> None:
        key = session, note.terminal
        display = self._displays.get(key) or self._display(key)
        match note:
            case Info(_, _, command):
                display.command = command or display.command
            case Output(_, data, whole):
                (display.replace if whole else display.feed)(data)
            case Exit(_, end):
                display.finish(end)
        self._changed(key)

    def _display(self, key: SessionKey) -> Display:
        ours = self._ours.get(key)
        command, followed = ours or (None, True)
        display = Display(command, limit=self._limit, lines=self._lines, ours=ours is not None)
        self._displays[key] = display
        while len(self._displays) > DISPLAYS_MAX:
            self._displays.popitem(last=False)
        if not followed:
            self._ours[key] = command or "", True
            self._follow(key)
        return display

    def _content(self, session: str, content: Raw | None) -> list[Raw | SessionKey] | None:
        """Give a content with the keys of terminals to be shown in it; None if there are none."""
        found: list[Raw | SessionKey] = []
        for item in items(content):
            terminal = terminal_in(item)
            key = None if terminal is None else (session, terminal)
            if key is None or not self._is_to_be_shown(key):
                # A copy: it refers to the whole message otherwise, and keeps it.
                found.append(item.copy())
            else:
                if key not in self._displays:
                    self._display(key)
                found.append(key)
        return found if any(not isinstance(item, Raw) for item in found) else None

    def _is_to_be_shown(self, terminal: SessionKey) -> bool:
        """Whether the editor cannot: one that has terminals may know this one."""
        known = terminal in self._ours or terminal in self._displays
        return known or not self._editor_has_terminals

    def _take_raw_output(self, call: _Call | None, update: Update) -> None:
        """Show what an update says of the output of the only terminal in its call, not one of ours.

        Of several it is not known whose output it is.
        """
        keys = {item for item in call.content if not isinstance(item, Raw)} if call else set()
        if len(keys) != 1 or (output := from_raw_output(update.fields.get("rawOutput"))) is None:
            return
        for key in keys - self._ours.keys():
            if display := self._displays.get(key):
                display.add_raw_output(output)
                self._changed(key)

    def _look(self, content: list[Raw | SessionKey], *, even_silent: bool = False) -> list[Any]:
        looks: list[Any] = []
        for item in content:
            if isinstance(item, Raw):
                looks.append(item)
                continue
            display = self._displays.get(item)
            fence = "[output no longer kept]" if display is None else None
            if display is not None:
                fence = display.fence(even_silent=even_silent)
            if fence is not None:
                looks.append({"type": "content", "content": {"type": "text", "text": fence}})
        return looks

    def _changed(self, terminal: SessionKey) -> None:
        self._dirty |= dict.fromkeys(self._shown_in.get(terminal, ()))

    def _forget(self, key: SessionKey) -> None:
        call = self._calls.pop(key, None)
        self._dirty.pop(key, None)
        for item in call.content if call else ():
            if not isinstance(item, Raw) and (calls := self._shown_in.get(item)):
                calls.discard(key)
                if not calls:
                    del self._shown_in[item]
