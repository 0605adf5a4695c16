"""The tool calls of one session, retained for clients that subscribe later.

A `tool_call` announces a tool call, and a `tool_call_update` replaces the members that the update
contains (ACP v1, "Tool Calls"). An agent may send either without the other. Members are retained as
raw JSON; members that ACP does not define are dropped. `_meta` is merged member by member, except
the members that describe terminals of the agent's own, which `agent_terminals` retains.

Memory is bounded: members that are too long are dropped, and if there are too many tool calls, or
if all together are too large, those that were changed least recently are dropped.
"""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from sys import getsizeof
from typing import Final

from msgspec import Raw

from acpterm.acp.raw_json import members
from acpterm.acp.terminal_updates import META_KEYS
from acpterm.host.state.records import ToolCallRecord

CALLS_MAX: Final = 1_000
MEMBER_NAMES: Final = (
    *("title", "name", "kind", "status", "content", "locations", "rawInput", "rawOutput"),
)
# Maximum bytes: of one member, and of all tool calls of a session.
MEMBER_BYTES_MAX: Final = 16 * 1024
TOTAL_BYTES_MAX: Final = 1024 * 1024
# Bytes of overhead that are counted for a call, and for each of its members and terminals.
_CALL_BYTES: Final = 256
_MEMBER_BYTES: Final = 64
# How many terminals of one tool call are retained at most: the first ones.
TERMINALS_MAX: Final = 1_000
# Terminals with longer ids, in characters, are not retained. Tool calls with longer ids are not
# stored for the next worker.
STORED_ID_MAX: Final = 512


class RecordedToolCall:
    """One tool call: its members, its `_meta`, and the ids of the terminals that it shows."""

    # Numbers grow in the order in which tool calls began, `changes` in that of their last changes.

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.changes = 0
        self.fields: Final[dict[str, Raw]] = {}
        self.meta: Final[dict[str, Raw]] = {}
        self.terminals: list[str] = []

    def size(self) -> int:
        members = (*self.fields.items(), *self.meta.items())
        return (
            _CALL_BYTES
            + sum(_MEMBER_BYTES + len(name) + len(bytes(value)) for name, value in members)
            + sum(_MEMBER_BYTES + getsizeof(terminal) for terminal in self.terminals)
        )

    def change(self, fields: dict[str, Raw]) -> None:
        for name, value in fields.items():
            if name not in MEMBER_NAMES:
                continue
            self.fields.pop(name, None)
            if len(bytes(value)) <= MEMBER_BYTES_MAX:
                # Copied, since a `Raw` keeps the whole message that it is a slice of in memory.
                self.fields[name] = value.copy()
        for name, value in members(fields.get("_meta")).items():
            self._apply_meta(name, value)

    def record(self, identifier: str) -> ToolCallRecord:
        return ToolCallRecord(
            id=identifier,
            changed=self.changes,
            fields={name: bytes(value) for name, value in self.fields.items()},
            meta={name: bytes(value) for name, value in self.meta.items()},
            terminals=self.terminals,
        )

    def restore(self, record: ToolCallRecord) -> None:
        self.changes = record.changed
        self.fields.update({name: Raw(value) for name, value in record.fields.items()})
        self.meta.update({name: Raw(value) for name, value in record.meta.items()})
        self.terminals = record.terminals

    def _apply_meta(self, name: str, value: Raw) -> None:
        if name in META_KEYS:
            return
        self.meta.pop(name, None)
        found = (*self.meta.items(), (name, value))
        if (
            sum(_MEMBER_BYTES + len(key) + len(bytes(other)) for key, other in found)
            <= MEMBER_BYTES_MAX
        ):
            self.meta[name] = value.copy()


class ToolCalls:
    """The tool calls of a session, in the order in which they were last changed."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, RecordedToolCall] = OrderedDict()
        # The size, in bytes, with which each call is counted in `size`.
        self._sizes: dict[str, int] = {}
        self.size = 0
        self._numbers = itertools.count()
        self._changes = itertools.count(1)

    def __iter__(self) -> Iterator[tuple[str, RecordedToolCall]]:
        return iter(list(self._calls.items()))

    def __len__(self) -> int:
        return len(self._calls)

    def get(self, call: str) -> RecordedToolCall | None:
        return self._calls.get(call)

    def numbers(self) -> list[int]:
        return [found.number for found in self._calls.values()]

    def restore(self, records: Iterable[tuple[int, ToolCallRecord]]) -> None:
        last = -1
        for number, record in sorted(records, key=lambda one: one[1].changed):
            found = self._calls[record.id] = RecordedToolCall(number)
            found.restore(record)
            self._count(record.id, found)
            last = max(last, number)
            self._changes = itertools.count(record.changed + 1)
        self._numbers = itertools.count(last + 1)

    def apply(
        self, call: str, fields: dict[str, Raw], terminals: list[str] | None
    ) -> list[tuple[int, Callable[[], ToolCallRecord] | None]]:
        """Apply an update to the tool call `call`; `terminals` None leaves those it shows."""
        # Returns the numbers of the calls whose stored records must change, each with a function
        # that returns the new record, or None to remove it.
        found = self._calls.pop(call, None) or RecordedToolCall(next(self._numbers))
        found.change(fields)
        found.changes = next(self._changes)
        if terminals is not None:
            names = (name for name in terminals if len(name) <= STORED_ID_MAX)
            found.terminals = list(itertools.islice(names, TERMINALS_MAX))
        self._calls[call] = found
        self._count(call, found)
        changed: list[tuple[int, Callable[[], ToolCallRecord] | None]] = []
        while len(self._calls) > CALLS_MAX or (
            self.size > TOTAL_BYTES_MAX and len(self._calls) > 1
        ):
            identifier, gone = self._calls.popitem(last=False)
            self.size -= self._sizes.pop(identifier)
            changed.append((gone.number, None))
        store = partial(found.record, call) if len(call) <= STORED_ID_MAX else None
        changed.append((found.number, store))
        return changed

    def forget(self) -> list[int]:
        """Drop all tool calls; return the `RecordedToolCall.number` of each."""
        numbers = self.numbers()
        self._calls.clear()
        self._sizes.clear()
        self.size = 0
        return numbers

    def _count(self, call: str, found: RecordedToolCall) -> None:
        size = getsizeof(call) + found.size()
        self.size += size - self._sizes.get(call, 0)
        self._sizes[call] = size

    def in_order(self) -> list[str]:
        return sorted(self._calls, key=lambda call: self._calls[call].number)

    def calls_showing(self, terminal: str) -> list[str]:
        return [call for call, found in self._calls.items() if terminal in found.terminals]
