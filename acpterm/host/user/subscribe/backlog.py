"""What one who is told of tool calls has not been told yet: as it came, or merged if that is much.

States:

    following ──more than `MOST` bytes wait──▶ behind ──all is told──▶ following

- *following*: each update waits as it came, in order.
- *behind*: of each call waits which of its members have changed, in the order in which the calls
  first did; their values are those that the session remembers when it is told. What waits is
  bounded then by what the session remembers.

One who comes late begins behind, by all there is.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw

from acpterm.host.sessions import tool_calls
from acpterm.host.sessions.tool_calls import ToolCall, ToolCalls

# Bytes of updates that wait, with something for each.
BACKLOG_BYTES_MAX: Final = 256 * 1024
_UPDATE_OVERHEAD_BYTES: Final = 256

# The members of a tool call that are told.
MEMBER_NAMES: Final = (*tool_calls.MEMBER_NAMES, "_meta")


class UpdateBacklog:
    """What has not been told."""

    def __init__(self, calls: ToolCalls) -> None:
        self._calls = calls
        self._queue: deque[tuple[str, dict[str, Raw]]] = deque()
        self._size = 0
        self._behind: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._queue or self._behind)

    def add(self, call: str, fields: Mapping[str, Raw]) -> None:
        """Have the members of an update told."""
        said = {name: fields[name] for name in MEMBER_NAMES if name in fields}
        if not self._behind:
            size = _size(said)
            if self._size + size <= BACKLOG_BYTES_MAX:
                # Copies: they refer to the whole message otherwise, and keep it.
                copies = {name: value.copy() for name, value in said.items()}
                self._queue.append((call, copies))
                self._size += size
                return
            for earlier, others in self._queue:
                self._merge(earlier, others)
            self._queue.clear()
            self._size = 0
        self._merge(call, said)

    def add_all(self, call: str) -> None:
        """Have all told that is known of a call; to be used before anything is added."""
        self._merge(call, dict.fromkeys(MEMBER_NAMES))

    def pop(self) -> tuple[str, dict[str, Raw]] | None:
        """Give what is to be told next: a call and its members, which may be none."""
        if self._queue:
            call, fields = self._queue.popleft()
            self._size -= _size(fields)
            return call, fields
        while self._behind:
            call = next(iter(self._behind))
            names = self._behind.pop(call)
            if (known := self._calls.get(call)) is not None:
                return call, snapshot(known, names)
        return None

    def discard(self, call: str) -> None:
        """Leave out what waits of a call: all that is known of it is about to be told."""
        self._queue = deque(item for item in self._queue if item[0] != call)
        self._size = sum(_size(fields) for _, fields in self._queue)
        self._behind.pop(call, None)

    def _merge(self, call: str, fields: Mapping[str, object]) -> None:
        self._behind.setdefault(call, set()).update(fields)
        if len(self._behind) > 2 * tool_calls.CALLS_MAX:
            self._behind = {c: names for c, names in self._behind.items() if self._calls.get(c)}


def snapshot(call: ToolCall, names: set[str] | None = None) -> dict[str, Raw]:
    """Give members of a call as they are remembered: those of `names`, or all.

    Of content that was too long to be remembered the terminals are left.
    """
    known: dict[str, Raw] = {
        name: call.fields[name]
        for name in MEMBER_NAMES
        if name in call.fields and (names is None or name in names)
    }
    if "content" not in known and (call.terminals if names is None else "content" in names):
        shown = [{"type": "terminal", "terminalId": terminal} for terminal in call.terminals]
        if shown or names is not None:
            known["content"] = Raw(msgspec.json.encode(shown))
    if call.meta and (names is None or "_meta" in names):
        known["_meta"] = Raw(msgspec.json.encode(call.meta))
    return known


def _size(fields: Mapping[str, Raw]) -> int:
    return _UPDATE_OVERHEAD_BYTES + sum(len(bytes(value)) for value in fields.values())
