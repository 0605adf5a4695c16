"""The state of the tool calls of a turn, merged from their updates."""

import shlex
from typing import Final

from msgspec import Raw, UnsetType

from acpterm.acp.raw_json import items, members, text
from acpterm.acp.session import Content, Diff, Terminal, ToolCall, ToolCallContent, ToolCallUpdate
from acpterm.runtime.bounded_dict import BoundedDict
from acpterm.runtime.sanitize import escape_invisible, one_line

CALLS_MAX: Final = 1000
# Kinds of tool calls that change nothing.
_READ_ONLY_KINDS: Final = ("read", "search", "think", "fetch")
# Limits of a question to the user.
_TITLE_CHARS_MAX: Final = 1000
_COMMAND_LINE_CHARS_MAX: Final = 2000
_COMMAND_LINES_MAX: Final = 40


class ToolCallState:
    def __init__(self, identifier: str) -> None:
        self.id: Final = identifier
        self.title = ""
        self.tool: str | None = None
        """The name of the tool, if the agent reports it."""
        self.kind = "other"
        self.status = "pending"
        self.command: str | None = None
        """The command that the call runs, if its input names one."""
        self.diffs: list[Diff] = []
        self.texts: list[str] = []
        self.terminals: list[str] = []
        self.start_printed = False
        self.end_printed = False
        self.refused = False
        """Whether the user or the rule (`--allow`) has refused permission for the call."""
        self.printed_diffs: list[Diff] = []

    @property
    def name(self) -> str:
        """The call's title, with the tool and the command unless the title contains them."""
        title = self.title or self.kind
        if self.tool is not None and self.tool not in title:
            title += f" ({self.tool})"
        if self.command is None or self.command.strip() in title:
            return title
        return f"{title}: {self.command}"

    @property
    def question(self) -> str:
        """The call in a question to the user: its title, and its command, cut if it is long."""
        title = one_line(self.title or self.kind, _TITLE_CHARS_MAX)
        if self.command is None or self.command == title:
            return title
        lines = self.command.split("\n")
        shown = [
            f"    {escape_invisible(line)[:_COMMAND_LINE_CHARS_MAX]}"
            for line in lines[:_COMMAND_LINES_MAX]
        ]
        wide = any(
            len(escape_invisible(line)) > _COMMAND_LINE_CHARS_MAX
            for line in lines[:_COMMAND_LINES_MAX]
        )
        if wide or len(lines) > _COMMAND_LINES_MAX:
            shown.append(f"    … and more: {len(self.command)} characters in all")
        return "\n".join([title, *shown])


class ShownToolCalls:
    """The tool calls of a session: the latest `CALLS_MAX`."""

    def __init__(self) -> None:
        self._calls: BoundedDict[str, ToolCallState] = BoundedDict(CALLS_MAX)
        self.refusals = 0
        self.acted = False
        """Whether the agent has run a command, written a file, been granted a permission, or
        completed a tool call of a kind that may change something."""

    def get(self, identifier: str) -> ToolCallState:
        """Return the tool call with this id, a new one if it is unknown."""
        call = self._calls.get(identifier)
        if call is None:
            call = self._calls[identifier] = ToolCallState(identifier)
        return call

    def record_decision(self, call: ToolCallState, *, allowed: bool) -> None:
        """Record the user's or the rule's decision, on which the exit status depends."""
        if allowed:
            self.acted = True
        else:
            call.refused = True
            self.refusals += 1

    def update(self, update: ToolCall | ToolCallUpdate) -> ToolCallState:
        """Merge an update into the state of its tool call; return the state."""
        call = self.get(update.tool_call_id)
        if isinstance(update.title, str) and update.title:
            call.title = update.title
        if not isinstance(update.name, UnsetType):
            call.tool = update.name or call.tool
        if isinstance(update.kind, str):
            call.kind = update.kind
        if isinstance(update.status, str):
            call.status = update.status
            if (
                call.status == "completed"
                and call.kind not in _READ_ONLY_KINDS
                and not call.refused
            ):
                self.acted = True
        if not isinstance(update.raw_input, UnsetType):
            call.command = _command(update.raw_input) or call.command
        if update.content is None or isinstance(update.content, list):
            content = update.content or []
            call.diffs = [item for item in content if isinstance(item, Diff)]
            call.texts = [block for item in content if (block := _text(item)) is not None]
            call.terminals = [item.terminal_id for item in content if isinstance(item, Terminal)]
        return call

    def update_compaction(self, fields: dict[str, Raw]) -> ToolCallState | None:
        """Merge an update about a compaction of the context, which is shown like a tool call."""
        if (identifier := text(fields.get("compactionId"))) is None:
            return None
        call = self.get(f"compaction {identifier}")
        call.title = "compact the conversation"
        call.status = text(fields.get("status")) or call.status
        if "summary" in fields:
            call.texts = [_block_text(block) or "" for block in items(fields["summary"])]
        if chunk := _block_text(fields.get("content")):
            call.texts = ["\n".join(call.texts) + chunk]
        if error := text(fields.get("error")):
            call.texts = [error]
        return call


def _command(raw_input: Raw) -> str | None:
    """Return the command in a tool call's input: a string, or a list of words."""
    fields = members(raw_input)
    for name in ("command", "cmd"):
        if (line := text(fields.get(name))) is not None:
            return line
        words = [word for item in items(fields.get(name)) if (word := text(item)) is not None]
        if words:
            return shlex.join(words)
    return None


def _text(item: ToolCallContent) -> str | None:
    return _block_text(item.content) if isinstance(item, Content) else None


def _block_text(block: Raw | None) -> str | None:
    return text(members(block).get("text"))
