"""One session of one connection: its terminals, and the tool calls that show them.

States of a terminal in its session:

- *held*: the agent may use it.
- *taken over*: the user owns it; the agent may read its output and release its id.
- *released*: its id is remembered, so that a second release succeeds and errors can say that it
  was released. Every other use is refused. What happens to the terminal itself is up to the
  registry.

A session is created by its first use: in ACP the client and the agent create sessions, and a host
does not see it. The session's directory comes from `_acpterm/session/set`, if at all.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from sys import getsizeof
from typing import Final

import trio
from msgspec import Raw

from acpterm.acp.terminal_updates import TerminalUpdate, from_meta
from acpterm.host.agent.creates import Creates
from acpterm.host.entry import AgentInfo, TerminalEntry
from acpterm.host.sessions.agent_terminals import AgentTerminals
from acpterm.host.sessions.observed import Observer
from acpterm.host.sessions.tool_calls import ToolCalls
from acpterm.host.state.records import SessionRecord, ToolCallRecord, pack_text, unpack_text
from acpterm.host.state.store import session_key, tool_call_key
from acpterm.host.state.writer import StateWriter
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quote
from acpterm.runtime.bounded_dict import BoundedDict
from acpterm.terminal.terminal import Terminal

# Ids of released terminals that are remembered; older ones are answered like unknown ids.
_RELEASED_MAX: Final = 10_000
# How many of them, the newest, are stored: each release stores all of these again, and a client
# that repeats a release does so at once.
_STORED_RELEASED_MAX: Final = 256
_STORED_CWD_BYTES_MAX: Final = 4096
# Bytes of memory that a session, and each released id, takes in addition to its text.
_SESSION_BYTES: Final = 2048
_RELEASED_BYTES: Final = 160


class SessionState:
    """Stores the records of one session: the one with this number in its connection.

    States: *unstored* until `store`; *stored* until `remove`.
    """

    def __init__(self, writer: StateWriter, connection: str, number: int) -> None:
        self._writer: Final = writer
        self._connection: Final = connection
        self._number: Final = number
        self._key: Final = session_key(connection, number)
        self._is_stored = False

    def store(self, record: Callable[[], SessionRecord]) -> None:
        """Schedule the session's record to be stored, now and after each change."""
        self._is_stored = True
        self.changed(record)

    def restored(self) -> None:
        """Record that the previous worker has stored the session."""
        self._is_stored = True

    def changed(self, record: Callable[[], SessionRecord]) -> None:
        """Schedule the session's record to be stored again, if it is stored at all."""
        if self._is_stored:
            self._writer.changed(self._key, lambda: record().encode())

    def call_changed(self, number: int, record: Callable[[], ToolCallRecord] | None) -> None:
        """Schedule the record of a tool call to be stored; None removes it."""
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


class Session:
    """A session."""

    def __init__(
        self, identifier: str, agent: AgentInfo, state: SessionState, creates: Creates
    ) -> None:
        self.id: Final = identifier
        self.agent: Final = agent
        self._state: Final = state
        self._creates: Final = creates
        self._cwd: str | None = None
        self._cancelled = 0
        self.entries: Final[dict[str, TerminalEntry]] = {}
        """The terminals that the agent may name."""
        self.tool_calls: Final = ToolCalls()
        self.agent_terminals: Final = AgentTerminals()
        """The terminals that the agent runs itself."""
        self._observers: Final[set[Observer]] = set()
        """Called with each update: the id of its tool call or None, the members of the update, and
        the ids of the agent's own terminals that it describes."""
        self.closed: Final = trio.Event()
        """Set when its connection is closed."""
        self._released: BoundedDict[str, None] = BoundedDict(_RELEASED_MAX)

    @property
    def cwd(self) -> str | None:
        """The working directory of commands that do not name one."""
        return self._cwd

    @cwd.setter
    def cwd(self, path: str) -> None:
        self._cwd = path
        self._changed()

    @property
    def cancelled(self) -> int:
        """How many times its turn was cancelled."""
        return self._cancelled

    def cancel(self) -> None:
        """Count a turn that was cancelled."""
        self._cancelled += 1
        self._changed()

    def store(self) -> None:
        """Schedule the record to be stored, before the next response at the latest."""
        self._state.store(self._record)

    def _changed(self) -> None:
        self._state.changed(self._record)

    @property
    def size(self) -> int:
        """Approximate bytes of memory, without the session's terminals."""
        text = getsizeof(self.id) + (getsizeof(self._cwd) if self._cwd else 0)
        released = _RELEASED_BYTES * len(self._released)
        return _SESSION_BYTES + text + released + self.tool_calls.size + self.agent_terminals.size

    def forget_updates(self) -> None:
        """Remove the tool calls and the agent's own terminals that its updates described."""
        for number in self.tool_calls.forget():
            self._state.call_changed(number, None)
        self.agent_terminals.forget()

    def forget(self) -> None:
        """Remove the stored records of the session and its tool calls."""
        self._state.remove(self.tool_calls.numbers())

    def restore(self, record: SessionRecord, calls: Iterable[tuple[int, ToolCallRecord]]) -> None:
        """Restore what the previous worker has stored; `calls` are numbered tool calls."""
        self._state.restored()
        self._cwd = None if record.cwd is None else unpack_text(record.cwd)
        self._cancelled = record.cancelled
        self._released.update(dict.fromkeys(record.released))
        self.tool_calls.restore(calls)

    def _record(self) -> SessionRecord:
        ids = reversed(self._released)
        released = [*itertools.islice(ids, _STORED_RELEASED_MAX)][::-1]
        # No directory has a longer path.
        is_stored = self._cwd is not None and len(self._cwd) <= _STORED_CWD_BYTES_MAX
        cwd = pack_text(self._cwd) if is_stored and self._cwd else None
        return SessionRecord(id=self.id, cwd=cwd, cancelled=self._cancelled, released=released)

    def add(self, entry: TerminalEntry) -> None:
        """Add a terminal that the agent may name."""
        self.entries[entry.id] = entry

    def readable(self, identifier: str) -> Terminal:
        """Return the terminal with this id, for reading; raise `RpcError` (-32002) if unknown."""
        try:
            entry = self.entries[identifier]
        except KeyError:
            raise self._no_such(identifier) from None
        self._creates.confirm(entry)
        return entry.terminal

    def owned(self, identifier: str, what: str) -> TerminalEntry:
        """Return the entry with this id, for an operation that changes the terminal.

        `what` names the operation in the message. Raises `RpcError`: -32002 if the id is unknown,
        -32602 if the user has taken the terminal over.
        """
        self.readable(identifier)
        entry = self.entries[identifier]
        if entry.is_users:
            raise RpcError(
                INVALID_PARAMS,
                f"terminal {quote(identifier)} cannot be {what}: the user has taken it over, "
                "and owns it now; its output can still be read, and its id released",
            )
        return entry

    def calls_showing(self, identifier: str) -> list[str]:
        """Return the ids of the tool calls that show a terminal."""
        return self.tool_calls.calls_showing(identifier)

    def release(self, identifier: str) -> TerminalEntry | None:
        """Release the id of a terminal; return its entry, or None if it was released before.

        Raises `RpcError` (-32002) for an id that was never this session's.
        """
        entry = self.entries.pop(identifier, None)
        if entry is None:
            if identifier in self._released:
                return None
            raise self._no_such(identifier)
        self._creates.confirm(entry)
        entry.record_id_release()
        self._released[identifier] = None
        self._changed()
        return entry

    @contextmanager
    def observe(self, observer: Observer) -> Iterator[None]:
        """Call `observer` synchronously after each update for the duration of the block."""
        self._observers.add(observer)
        try:
            yield
        finally:
            self._observers.discard(observer)

    def record_update(self, call: str, fields: dict[str, Raw], terminals: list[str] | None) -> None:
        """Record a `tool_call` or `tool_call_update`; `fields` are its members as raw JSON.

        `terminals`: the ids of the terminals that it shows, None if it has no content.
        """
        for number, record in self.tool_calls.apply(call, fields, terminals):
            self._state.call_changed(number, record)
        changed = self._record_terminal_updates(from_meta(fields.get("_meta")))
        for observer in list(self._observers):
            observer(call, fields, changed)

    def record_terminal_updates(self, updates: Iterable[TerminalUpdate]) -> None:
        """Record updates of the agent's own terminals that belong to no tool call."""
        if changed := self._record_terminal_updates(updates):
            for observer in list(self._observers):
                observer(None, {}, changed)

    def _record_terminal_updates(self, updates: Iterable[TerminalUpdate]) -> list[str]:
        """Record updates of the agent's own terminals; return the ids of those that changed."""
        # The host's terminals are not the agent's to describe.
        return self.agent_terminals.apply(
            update
            for update in updates
            if update.terminal not in self.entries and update.terminal not in self._released
        )

    def _no_such(self, identifier: str) -> RpcError:
        if identifier in self._released:
            what = f"terminal {quote(identifier)} has been released: its id is no longer valid"
        else:
            what = (
                f"there is no terminal {quote(identifier)} in session {quote(self.id)}: "
                "use an id that terminal/create answered for this session"
            )
        return RpcError(RESOURCE_NOT_FOUND, what)
