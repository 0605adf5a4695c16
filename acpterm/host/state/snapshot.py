"""The previous worker's records in the store, read and checked before anything is restored.

If any record was written by a newer version of acpterm, nothing is restored (`StateVersionError`):
a worker of that version must serve. The following records are skipped: a damaged record, a
session's record without the record of its connection, and a tool call's record without the record
of its session.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

import structlog

from acpterm.host.state.records import (
    AgentSessionRecord,
    ApprovalRecord,
    AuditRecord,
    ConnectionRecord,
    HostRecord,
    LaunchRecord,
    ListenRecord,
    Record,
    StateError,
    StateVersionError,
    TerminalRecord,
    ToolCallRecord,
)
from acpterm.host.state.store import AUDIT_KEY, HOST_KEY, LISTEN_KEYS, StoredEntry, parse_key

_log = structlog.get_logger("acpterm.state")

R = TypeVar("R", bound=Record)
K = TypeVar("K")
V = TypeVar("V")


class StoredSession(NamedTuple):
    record: AgentSessionRecord
    tool_calls: dict[int, ToolCallRecord]


class StoredConnection(NamedTuple):
    record: ConnectionRecord
    sessions: dict[int, StoredSession]


class Snapshot:
    """The records of a store by id; `unusable` has the keys of those that cannot be restored."""

    def __init__(self) -> None:
        self.host: HostRecord | None = None
        self.audit: AuditRecord | None = None
        self.listeners: Final[dict[str, ListenRecord]] = {}
        self.connections: Final[dict[str, StoredConnection]] = {}
        self.terminals: Final[dict[str, TerminalRecord]] = {}
        self.launches: Final[dict[str, LaunchRecord]] = {}
        self.approvals: Final[dict[str, ApprovalRecord]] = {}
        self.unusable: Final[list[str]] = []

    @classmethod
    def read(cls, entries: Mapping[str, StoredEntry]) -> "Snapshot":
        """Return the records of a store. Raises `StateVersionError`."""
        found = cls()
        records = [(*parsed, key) for key in entries if (parsed := parse_key(key))]
        # Parents before their children: connections, sessions, tool calls.
        for kind, parts, key in sorted(records, key=lambda one: len(one[1])):
            if not found._add(kind, parts, entries[key].value):
                found.unusable.append(key)
        for key, entry in entries.items():
            if key == HOST_KEY:
                found.host = _read(HostRecord, entry.value)
            elif key == AUDIT_KEY:
                found.audit = _read(AuditRecord, entry.value)
            elif key in LISTEN_KEYS:
                _put(found.listeners, key, _read(ListenRecord, entry.value))
        return found

    def _add(self, kind: str, parts: list[str], value: bytes) -> bool:
        """Add a record; return False if it is skipped (see the module)."""
        name, *numbers = parts
        if kind == "t":
            return _put(self.terminals, name, _read(TerminalRecord, value))
        if kind == "l":
            return _put(self.launches, name, _read(LaunchRecord, value))
        if kind == "q":
            return _put(self.approvals, name, _read(ApprovalRecord, value))
        return self._add_of_connection(kind, name, numbers, value)

    def _add_of_connection(self, kind: str, name: str, numbers: list[str], value: bytes) -> bool:
        if kind == "c":
            connection = _read(ConnectionRecord, value)
            stored_connection = None if connection is None else StoredConnection(connection, {})
            return _put(self.connections, name, stored_connection)
        owner = self.connections.get(name)
        if owner is None:
            return False
        if kind == "s":
            session = _read(AgentSessionRecord, value)
            stored = None if session is None else StoredSession(session, {})
            return _put(owner.sessions, int(numbers[0]), stored)
        session_of_call = owner.sessions.get(int(numbers[0]))
        if session_of_call is None:
            return False
        return _put(session_of_call.tool_calls, int(numbers[1]), _read(ToolCallRecord, value))


def _put(into: dict[K, V], key: K, value: V | None) -> bool:
    if value is not None:
        into[key] = value
    return value is not None


def _read(kind: type[R], value: bytes) -> R | None:
    """Decode a record; None if it is damaged. Raises `StateVersionError`."""
    try:
        return kind.decode(value)
    except StateVersionError:
        raise
    except StateError as error:
        _log.error("state lost", why=str(error))
        return None
