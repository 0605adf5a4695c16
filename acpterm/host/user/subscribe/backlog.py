"""Updates of tool calls not yet sent to one subscriber, merged per call if there are many.

States:

    following ──more than `bytes_max` queued──▶ behind ──all is sent──▶ following

- *following*: the updates are queued unchanged, in order.
- *behind*: for each changed tool call, only the names of the changed members are queued, in the
  order in which the calls first changed. The values are read from the session when the call is
  sent, so the queue is bounded by the number of calls that the session retains.

If the session has tool calls when the subscription begins, the state is *behind*, with all of them.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw

from acpterm.host.sessions import tool_calls
from acpterm.host.sessions.tool_calls import RecordedToolCall, ToolCalls

# Maximum bytes of queued updates, including an overhead for each update.
BACKLOG_BYTES_MAX: Final = 256 * 1024
_UPDATE_OVERHEAD_BYTES: Final = 256

# The members of a tool call that subscribers get.
MEMBER_NAMES: Final = (*tool_calls.MEMBER_NAMES, "_meta")


class UpdateBacklog:
    """The updates not sent yet; false if there are none. Merged above `bytes_max`."""

    def __init__(self, calls: ToolCalls, bytes_max: int = BACKLOG_BYTES_MAX) -> None:
        self._calls = calls
        self._bytes_max = bytes_max
        self._queue: deque[tuple[str, dict[str, Raw]]] = deque()
        self._size = 0
        self._behind: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._queue or self._behind)

    def add(self, call: str, fields: Mapping[str, Raw]) -> None:
        changed = {name: fields[name] for name in MEMBER_NAMES if name in fields}
        if not self._behind:
            size = _size(changed)
            if self._size + size <= self._bytes_max:
                # Copies, since a `Raw` keeps the whole message that it is a part of in memory.
                copies = {name: value.copy() for name, value in changed.items()}
                self._queue.append((call, copies))
                self._size += size
                return
            for earlier, others in self._queue:
                self._merge(earlier, others)
            self._queue.clear()
            self._size = 0
        self._merge(call, changed)

    def add_all(self, call: str) -> None:
        """Queue all members of a call from before the subscription; only before the first `add`."""
        self._merge(call, dict.fromkeys(MEMBER_NAMES))

    def pop(self) -> tuple[str, dict[str, Raw]] | None:
        """Remove and return the next update: the call's id and the members to send; or None."""
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
        """Remove all updates of the tool call `call`, since the whole call is about to be sent."""
        self._queue = deque(item for item in self._queue if item[0] != call)
        self._size = sum(_size(fields) for _, fields in self._queue)
        self._behind.pop(call, None)

    def _merge(self, call: str, fields: Mapping[str, object]) -> None:
        self._behind.setdefault(call, set()).update(fields)
        if len(self._behind) > 2 * tool_calls.CALLS_MAX:
            self._behind = {c: names for c, names in self._behind.items() if self._calls.get(c)}


def snapshot(call: RecordedToolCall, names: set[str] | None = None) -> dict[str, Raw]:
    """Return the current members of a tool call, or those in `names`."""
    # If `content` was too large to be retained, it is replaced by a list of the call's terminals.
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
