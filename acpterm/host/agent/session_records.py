"""Stores the records of one session of an agent, and of its tool calls, for the next worker."""

from collections.abc import Callable, Iterable
from typing import Final

from acpterm.host.state.records import SessionRecord, ToolCallRecord
from acpterm.host.state.store import session_key, tool_call_key
from acpterm.host.state.writer import StateWriter


class SessionRecords:
    """Stores the records of a session and its tool calls, from `store` to `remove`."""

    def __init__(self, writer: StateWriter, connection: str, number: int) -> None:
        self._writer: Final = writer
        self._connection: Final = connection
        self._number: Final = number
        self._key: Final = session_key(connection, number)
        self._is_stored = False

    def store(self, record: Callable[[], SessionRecord]) -> None:
        """Begin to store the session: before this call, `changed` has no effect."""
        self._is_stored = True
        self.changed(record)

    def restored(self) -> None:
        """Set the state to *stored*: the previous worker has stored the session."""
        self._is_stored = True

    def changed(self, record: Callable[[], SessionRecord]) -> None:
        """Schedule the session's changed record to be stored before the next response is sent."""
        if self._is_stored:
            self._writer.changed(self._key, lambda: record().encode())

    def call_changed(self, number: int, record: Callable[[], ToolCallRecord] | None) -> None:
        """Schedule the record of the tool call with this number to be stored or removed."""
        key = tool_call_key(self._connection, self._number, number)
        if record is None:
            self._writer.removed(key)
        elif self._is_stored:
            self._writer.changed(key, lambda: record().encode())

    def remove(self, calls: Iterable[int]) -> None:
        """Schedule the records of the session and of its tool calls to be removed."""
        if not self._is_stored:
            return
        self._is_stored = False
        for number in calls:
            self.call_changed(number, None)
        self._writer.removed(self._key)
