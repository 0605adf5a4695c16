"""The tool calls of one session, as far as they have been told: for whoever comes to look later.

A `tool_call` begins one, a `tool_call_update` changes those members that it has (ACP v1, "Tool
Calls"); one may come without the other. Members stay the JSON that they came as. Of `_meta` each
member is one of its own, but for what tells of an agent's own terminals, which is told of those.

Bounded: in number, the oldest go first, and each in what is kept of it; a member that is too long
for that is left out.
"""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from msgspec import Raw

from acpterm.acp.members import members
from acpterm.acp.notes import META_KEYS
from acpterm.host.state.records import ToolCallRecord

MOST: Final = 1_000
# Bytes of one member, and of all calls of a session together.
MEMBER: Final = 16 * 1024
ALL: Final = 256 * 1024
# Of the terminals that one tool call shows: the first ones.
SHOWN: Final = 1_000
# Characters of an id that is stored.
STORED_ID: Final = 512


class Call:
    """One tool call: its members, but for `sessionUpdate`, and the ids of terminals in it.

    `number` tells which came first.
    """

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.changes = 0
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

    def is_storable(self, identifier: str) -> bool:
        """Whether it is small enough to be stored: one that is alone may have more than `ALL`."""
        names = sum(map(len, self.fields))
        return len(identifier) <= STORED_ID and self.size + names <= ALL

    def record(self, identifier: str) -> ToolCallRecord:
        """Return what a successor of this worker has to know of it."""
        return ToolCallRecord(
            id=identifier,
            changed=self.changes,
            fields={name: bytes(value) for name, value in self.fields.items()},
            meta={name: bytes(value) for name, value in self.meta.items()},
            # Longer ones are no ids of terminals.
            terminals=[terminal for terminal in self.terminals if len(terminal) <= STORED_ID],
        )

    def restore(self, record: ToolCallRecord) -> None:
        """Take over what `record` returned in the worker before."""
        self.changes = record.changed
        self.fields.update({name: Raw(value) for name, value in record.fields.items()})
        self.meta.update({name: Raw(value) for name, value in record.meta.items()})
        self.terminals = record.terminals
        self.size = sum(map(len, record.fields.values()))
        self.size += sum(len(name) + len(value) for name, value in record.meta.items())

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
        self._changes = itertools.count(1)

    def __iter__(self) -> Iterator[tuple[str, Call]]:
        return iter(list(self._calls.items()))

    def __len__(self) -> int:
        return len(self._calls)

    def get(self, call: str) -> Call | None:
        """Give a call, if it is remembered."""
        return self._calls.get(call)

    def numbers(self) -> list[int]:
        """Return the numbers of the calls: see `Call.number`."""
        return [found.number for found in self._calls.values()]

    def restore(self, records: Iterable[tuple[int, ToolCallRecord]]) -> None:
        """Take over the calls of these numbers from the worker before."""
        last = -1
        for number, record in sorted(records, key=lambda one: one[1].changed):
            found = self._calls[record.id] = Call(number)
            found.restore(record)
            self._size += found.size
            last = max(last, number)
            self._changes = itertools.count(record.changed + 1)
        self._numbers = itertools.count(last + 1)

    def take(
        self, call: str, fields: dict[str, Raw], terminals: list[str] | None
    ) -> list[tuple[int, Callable[[], ToolCallRecord] | None]]:
        """Take what an update says; `terminals` is None when it does not say which are shown.

        Returns the numbers of the calls to be stored again, each with what makes its record, or
        None if the call was forgotten for want of room, or has none in the store.
        """
        found = self._calls.pop(call, None) or Call(next(self._numbers))
        self._size -= found.size
        found.change(fields)
        found.changes = next(self._changes)
        if terminals is not None:
            found.terminals = terminals[:SHOWN]
        self._calls[call] = found
        self._size += found.size
        changed: list[tuple[int, Callable[[], ToolCallRecord] | None]] = []
        while len(self._calls) > MOST or (self._size > ALL and len(self._calls) > 1):
            _, gone = self._calls.popitem(last=False)
            self._size -= gone.size
            changed.append((gone.number, None))
        store = partial(found.record, call) if found.is_storable(call) else None
        changed.append((found.number, store))
        return changed

    def in_order(self) -> list[str]:
        """Give the ids of the calls, in the order in which they began."""
        return sorted(self._calls, key=lambda call: self._calls[call].number)

    def showing(self, terminal: str) -> list[str]:
        """Give the ids of the calls that show a terminal."""
        return [call for call, found in self._calls.items() if terminal in found.terminals]
