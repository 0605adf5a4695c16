"""The tool calls of a turn, as far as their updates have told."""

import shlex
from collections import OrderedDict
from typing import Final

from msgspec import Raw, UnsetType

from acpterm.acp import Content, Diff, Terminal, ToolCall, ToolCallContent, ToolCallUpdate
from acpterm.acp.raw_json import items, members, text
from acpterm.client.sanitize import escape_invisible, one_line

CALLS_MAX: Final = 1000
# Kinds of calls that change nothing.
_LOOKS: Final = ("read", "search", "think", "fetch")
# Of what is asked: characters of a title and of a line of a command, and its lines.
_TITLE: Final = 1000
_WIDE: Final = 2000
_LONG: Final = 40


class ToolCallState:
    """One tool call, as it stands."""

    def __init__(self, identifier: str) -> None:
        self.id: Final = identifier
        self.title = ""
        self.kind = "other"
        self.status = "pending"
        self.command: str | None = None
        """What it runs, as far as its input says so."""
        self.diffs: list[Diff] = []
        self.texts: list[str] = []
        self.terminals: list[str] = []
        self.started = False
        """Whether it has been shown."""
        self.finished = False
        """Whether its end has been shown."""
        self.refused = False
        """Whether the user, or the rule, did not allow it."""
        self.shown: list[Diff] = []
        """Which of its diffs have been shown."""

    @property
    def name(self) -> str:
        """What to call it: its title, and what it runs where that does not say."""
        title = self.title or self.kind
        if self.command is None or self.command.strip() in title:
            return title
        return f"{title}: {self.command}"

    @property
    def question(self) -> str:
        """What a person is asked about it: its title in a line, then all of its command."""
        title = one_line(self.title or self.kind, _TITLE)
        if self.command is None or self.command == title:
            return title
        lines = self.command.split("\n")
        shown = [f"    {escape_invisible(line)[:_WIDE]}" for line in lines[:_LONG]]
        wide = any(len(escape_invisible(line)) > _WIDE for line in lines[:_LONG])
        if wide or len(lines) > _LONG:
            shown.append(f"    … and more: {len(self.command)} characters in all")
        return "\n".join([title, *shown])


class ToolCalls:
    """The calls of a session; of a thousand and more, the latest."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, ToolCallState] = OrderedDict()
        self.refusals = 0
        """How often a permission was refused."""
        self.acted = False
        """Whether the agent has done more than to look: run, written, or what it was allowed."""

    def get(self, identifier: str) -> ToolCallState:
        """Give the call of this id; a new one, if it was never told of."""
        call = self._calls.get(identifier)
        if call is None:
            call = self._calls[identifier] = ToolCallState(identifier)
            while len(self._calls) > CALLS_MAX:
                self._calls.popitem(last=False)
        return call

    def decided(self, call: ToolCallState, *, allowed: bool) -> None:
        """Note whether a call was allowed."""
        if allowed:
            self.acted = True
        else:
            call.refused = True
            self.refusals += 1

    def take(self, update: ToolCall | ToolCallUpdate) -> ToolCallState:
        """Take what an update tells of a call; an absent member leaves what was there."""
        call = self.get(update.tool_call_id)
        if isinstance(update.title, str) and update.title:
            call.title = update.title
        if isinstance(update.kind, str):
            call.kind = update.kind
        if isinstance(update.status, str):
            call.status = update.status
            if call.status == "completed" and call.kind not in _LOOKS and not call.refused:
                self.acted = True
        if not isinstance(update.raw_input, UnsetType):
            call.command = _command(update.raw_input) or call.command
        if update.content is None or isinstance(update.content, list):
            content = update.content or []
            call.diffs = [item for item in content if isinstance(item, Diff)]
            call.texts = [said for item in content if (said := _text(item)) is not None]
            call.terminals = [item.terminal_id for item in content if isinstance(item, Terminal)]
        return call


def _command(raw_input: Raw) -> str | None:
    """Find the command in a tool call's input: agents say it as a line, or as words."""
    found = members(raw_input)
    for name in ("command", "cmd"):
        if (line := text(found.get(name))) is not None:
            return line
        words = [word for item in items(found.get(name)) if (word := text(item)) is not None]
        if words:
            return shlex.join(words)
    return None


def _text(item: ToolCallContent) -> str | None:
    """Give the text that an item of a content is, if it is one."""
    return text(members(item.content).get("text")) if isinstance(item, Content) else None
