"""Where a session's records are stored."""

from collections.abc import Callable, Iterable
from typing import Final

from acpterm.host.state.records import SessionRecord, ToolCallRecord
from acpterm.host.state.store import session_key, tool_call_key
from acpterm.host.state.writer import StateWriter


class SessionState:
    """The keys of one session of a connection: number `number` of it.

    States: *unstored*, in which nothing is, until `store`; *stored*, until `remove`.
    """

    def __init__(self, writer: StateWriter, connection: str, number: int) -> None:
        self._writer: Final = writer
        self._connection: Final = connection
        self._number: Final = number
        self._key: Final = session_key(connection, number)
        self._is_stored = False

    def store(self, record: Callable[[], SessionRecord]) -> None:
        """Have the session's record stored, and each change from now on."""
        self._is_stored = True
        self.changed(record)

    def restored(self) -> None:
        """Note that the worker before has stored it."""
        self._is_stored = True

    def changed(self, record: Callable[[], SessionRecord]) -> None:
        """Have the session's record stored again."""
        if self._is_stored:
            self._writer.changed(self._key, lambda: record().encode())

    def call_changed(self, number: int, record: Callable[[], ToolCallRecord] | None) -> None:
        """Have the record of a tool call stored; None removes it."""
        key = tool_call_key(self._connection, self._number, number)
        if record is None:
            self._writer.removed(key)
        elif self._is_stored:
            self._writer.changed(key, lambda: record().encode())

    def remove(self, calls: Iterable[int]) -> None:
        """Remove the session's record and those of its tool calls."""
        if not self._is_stored:
            return
        self._is_stored = False
        for number in calls:
            self.call_changed(number, None)
        self._writer.removed(self._key)
