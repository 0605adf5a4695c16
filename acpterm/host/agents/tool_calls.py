"""The tool calls of one session, as far as they have been told: for whoever comes to look later.

A `tool_call` begins one, a `tool_call_update` changes those members that it has (ACP v1, "Tool
Calls"); one may come without the other. Members stay the JSON that they came as. Of `_meta` each
member is one of its own, but for what tells of an agent's own terminals, which is told of those.

Bounded: in number, the oldest go first, and each in what is kept of it; a member that is too long
for that is left out.
"""

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from msgspec import Raw

from acpterm.acp.members import members
from acpterm.acp.notes import META_KEYS

MOST: Final = 1_000
# Bytes of one member, and of all calls of a session together.
MEMBER: Final = 16 * 1024
ALL: Final = 256 * 1024
# Of the terminals that one tool call shows: the first ones.
SHOWN: Final = 1_000


class Call:
    """One tool call: its members, but for `sessionUpdate`, and the ids of terminals in it.

    `number` tells which came first.
    """

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.fields: Final[dict[str, Raw]] = {}
        self.meta: Final[dict[str, Raw]] = {}
        self.terminals: list[str] = []
        self.size = 0

    def change(self, fields: dict[str, Raw]) -> None:
        """Take the members of an update."""
        for name, value in fields.items():
            if name in ("sessionUpdate", "_meta"):
                continue
            if old := self.fields.pop(name, None):
                self.size -= len(bytes(old))
            if len(bytes(value)) <= MEMBER:
                # A copy: it refers to the whole message otherwise, and keeps it.
                self.fields[name] = value.copy()
                self.size += len(bytes(value))
        for name, value in members(fields.get("_meta")).items():
            self._take_meta(name, value)

    def _take_meta(self, name: str, value: Raw) -> None:
        if name in META_KEYS:
            return
        size = len(name) + len(bytes(value))
        if old := self.meta.pop(name, None):
            self.size -= len(name) + len(bytes(old))
        held = sum(len(key) + len(bytes(other)) for key, other in self.meta.items())
        if held + size <= MEMBER:
            self.meta[name] = value.copy()
            self.size += size


class ToolCalls:
    """The tool calls of a session, in the order in which they were last changed."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, Call] = OrderedDict()
        self._size = 0
        self._numbers = itertools.count()

    def __iter__(self) -> Iterator[tuple[str, Call]]:
        return iter(list(self._calls.items()))

    def __len__(self) -> int:
        return len(self._calls)

    def get(self, call: str) -> Call | None:
        """Give a call, if it is remembered."""
        return self._calls.get(call)

    def take(self, call: str, fields: dict[str, Raw], terminals: list[str] | None) -> None:
        """Take what an update says; `terminals` is None when it does not say which are shown."""
        found = self._calls.pop(call, None) or Call(next(self._numbers))
        self._size -= found.size
        found.change(fields)
        if terminals is not None:
            found.terminals = terminals[:SHOWN]
        self._calls[call] = found
        self._size += found.size
        while len(self._calls) > MOST or (self._size > ALL and len(self._calls) > 1):
            _, gone = self._calls.popitem(last=False)
            self._size -= gone.size

    def in_order(self) -> list[str]:
        """Give the ids of the calls, in the order in which they began."""
        return sorted(self._calls, key=lambda call: self._calls[call].number)

    def showing(self, terminal: str) -> list[str]:
        """Give the ids of the calls that show a terminal."""
        return [call for call, found in self._calls.items() if terminal in found.terminals]
