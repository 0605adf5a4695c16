"""The tool calls of a turn, as far as their updates have told."""

from collections import OrderedDict
from typing import Final

from acpterm.acp import Diff, Terminal, ToolCall, ToolCallUpdate

MOST: Final = 1000


class Call:
    """One tool call, as it stands."""

    def __init__(self, identifier: str) -> None:
        self.id: Final = identifier
        self.title = ""
        self.kind = "other"
        self.status = "pending"
        self.diffs: list[Diff] = []
        self.terminals: list[str] = []
        self.started = False
        """Whether it has been shown."""
        self.finished = False
        """Whether its end has been shown."""

    @property
    def name(self) -> str:
        """What to call it."""
        return self.title or self.kind


class Calls:
    """The calls of a session; of a thousand and more, the latest."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, Call] = OrderedDict()

    def get(self, identifier: str) -> Call:
        """Give the call of this id; a new one, if it was never told of."""
        call = self._calls.get(identifier)
        if call is None:
            call = self._calls[identifier] = Call(identifier)
            while len(self._calls) > MOST:
                self._calls.popitem(last=False)
        return call

    def take(self, update: ToolCall | ToolCallUpdate) -> Call:
        """Take what an update tells of a call; an absent member leaves what was there."""
        call = self.get(update.tool_call_id)
        if isinstance(update.title, str) and update.title:
            call.title = update.title
        if isinstance(update.kind, str):
            call.kind = update.kind
        if isinstance(update.status, str):
            call.status = update.status
        if update.content is None or isinstance(update.content, list):
            content = update.content or []
            call.diffs = [item for item in content if isinstance(item, Diff)]
            call.terminals = [item.terminal_id for item in content if isinstance(item, Terminal)]
        return call
