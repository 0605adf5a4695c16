"""One session of an agent's connection: its terminals, and the tool calls that show them.

States of a terminal in its session:

- *held*: the agent may use it.
- *promoted*: the user owns it; the agent may only read its output and release its id.
- *released*: the session remembers only the id, so that a second release succeeds and other
  requests get an error that says that the terminal was released. How long the terminal's output is
  retained is up to `host.registry`.

The host does not see how the agent and its ACP client create a session, so a `Session` is created
by the first request that names it. It has a directory only if `_acpterm/session/set` or
`_acpterm/session/open` has set one.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from sys import getsizeof
from typing import Final, TypeAlias

import trio
from msgspec import Raw

from acpterm.acp.terminal_updates import TerminalUpdate, from_meta
from acpterm.host.entry import AgentInfo, Origin, TerminalEntry
from acpterm.host.names import named
from acpterm.host.sessions.agent_terminals import AgentTerminals
from acpterm.host.sessions.tool_calls import ToolCalls
from acpterm.host.state.records import SessionRecord, ToolCallRecord, pack_text, unpack_text
from acpterm.host.state.store import session_key, tool_call_key
from acpterm.host.state.writer import StateWriter
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quote
from acpterm.policy.questions import Answer, Prefix, Question
from acpterm.policy.session_decisions import SessionDecisions
from acpterm.runtime.bounded_dict import BoundedDict

# How many ids of released terminals are remembered; older ids are treated as unknown.
_RELEASED_MAX: Final = 10_000
# How many of these ids, the newest, are stored for the next worker. Each release stores all of them
# again, so the number is small; it suffices, since a client repeats a release at once.
_STORED_RELEASED_MAX: Final = 256
_STORED_CWD_BYTES_MAX: Final = 4096
# Bytes of memory that a session, and each released id, takes in addition to its text.
_SESSION_BYTES: Final = 2048
_RELEASED_BYTES: Final = 160

Observer: TypeAlias = Callable[[str | None, dict[str, Raw], list[str]], None]
"""Called with a tool call's id or None, the members, and the ids of agents' terminals."""


class SessionRecords:
    """Stores the records of a session and its tool calls, from `store` to `remove`."""

    def __init__(self, writer: StateWriter, connection: str, number: int) -> None:
        self._writer: Final = writer
        self._connection: Final = connection
        self._number: Final = number
        self._key: Final = session_key(connection, number)
        self._is_stored = False

    def store(self, record: Callable[[], SessionRecord]) -> None:
        self._is_stored = True
        self.changed(record)

    def restored(self) -> None:
        self._is_stored = True

    def changed(self, record: Callable[[], SessionRecord]) -> None:
        if self._is_stored:
            self._writer.changed(self._key, lambda: record().encode())

    def call_changed(self, number: int, record: Callable[[], ToolCallRecord] | None) -> None:
        key = tool_call_key(self._connection, self._number, number)
        if record is None:
            self._writer.removed(key)
        elif self._is_stored:
            self._writer.changed(key, lambda: record().encode())

    def remove(self, calls: Iterable[int]) -> None:
        if not self._is_stored:
            return
        self._is_stored = False
        for number in calls:
            self.call_changed(number, None)
        self._writer.removed(self._key)


class Session(Origin):
    """A session of an agent's connection: its terminals, its directory and its tool calls."""

    def __init__(
        self,
        identifier: str,
        agent: AgentInfo,
        records: SessionRecords,
        confirm: Callable[[TerminalEntry], object],
    ) -> None:
        super().__init__(identifier, agent)
        self._records: Final = records
        # Called with each terminal that a request names.
        self._confirm: Final = confirm
        self._cwd: str | None = None
        self._workspace: str | None = None
        self._cancelled = 0
        self.entries: Final[dict[str, TerminalEntry]] = {}
        """The session's terminals by id: promoted ones too, but no released ones."""
        self.pending_creates = 0
        self._decisions = SessionDecisions()
        self.tool_calls: Final = ToolCalls()
        self.agent_terminals: Final = AgentTerminals()
        self._observers: Final[set[Observer]] = set()
        self.closed: Final = trio.Event()
        self._released: BoundedDict[str, None] = BoundedDict(_RELEASED_MAX)

    @property
    def cwd(self) -> str | None:
        """The working directory for `terminal/create` requests without `cwd`; None if not set."""
        return self._cwd

    @cwd.setter
    def cwd(self, path: str) -> None:
        self._cwd = path
        self._changed()

    @property
    def workspace(self) -> str | None:
        """Where the session's sandboxed programs may write; only the user's client can set it."""
        return self._workspace

    @workspace.setter
    def workspace(self, path: str) -> None:
        self._workspace = path
        self._changed()

    @property
    def cancelled(self) -> int:
        """How many prompt turns of the session were cancelled (by `session/cancel`)."""
        return self._cancelled

    def allowed_prefixes(self, directory: str) -> list[Prefix]:
        return self._decisions.allowed_in(directory)

    def decided(self, question: Question) -> Answer | None:
        """Return the answer to `question` that the user has given for the whole session, if any."""
        return self._decisions.find(question)

    def remember(self, question: Question, answer: Answer) -> None:
        """Remember the answer to a question if the user has given it for the whole session."""
        if self._decisions.remember(question, answer):
            self._changed()

    def cancel(self) -> None:
        self._cancelled += 1
        self._changed()

    def store(self) -> None:
        self._records.store(self._record)

    def _changed(self) -> None:
        self._records.changed(self._record)

    @property
    def size(self) -> int:
        text = sum(getsizeof(one) for one in (self.id, self._cwd, self._workspace) if one)
        released = _RELEASED_BYTES * len(self._released)
        updates = self.tool_calls.size + self.agent_terminals.size
        return _SESSION_BYTES + text + released + updates + self._decisions.size

    def forget_updates(self) -> None:
        for number in self.tool_calls.forget():
            self._records.call_changed(number, None)
        self.agent_terminals.forget()

    def remove_records(self) -> None:
        self._records.remove(self.tool_calls.numbers())

    def restore(self, record: SessionRecord, calls: Iterable[tuple[int, ToolCallRecord]]) -> None:
        self._records.restored()
        self._cwd = None if record.cwd is None else unpack_text(record.cwd)
        self._workspace = None if record.workspace is None else unpack_text(record.workspace)
        self._cancelled = record.cancelled
        self._released.update(dict.fromkeys(record.released))
        self._decisions = SessionDecisions(
            record.allowed, record.rejected, record.rejected_commands
        )
        self.tool_calls.restore(calls)

    def _record(self) -> SessionRecord:
        ids = reversed(self._released)
        released = [*itertools.islice(ids, _STORED_RELEASED_MAX)][::-1]
        # A longer path cannot be that of a directory.
        is_stored = self._cwd is not None and len(self._cwd) <= _STORED_CWD_BYTES_MAX
        cwd = pack_text(self._cwd) if is_stored and self._cwd else None
        return SessionRecord(
            id=self.id,
            cwd=cwd,
            workspace=None if self._workspace is None else pack_text(self._workspace),
            cancelled=self._cancelled,
            released=released,
            allowed=[list(prefix) for prefix in self._decisions.allowed],
            rejected=[list(prefix) for prefix in self._decisions.rejected],
            rejected_commands=self._decisions.rejected_commands,
        )

    @property
    def has_terminals(self) -> bool:
        return bool(self.entries) or self.pending_creates > 0

    def add(self, entry: TerminalEntry) -> None:
        self.entries[entry.id] = entry

    def find(self, identifier: str) -> TerminalEntry | None:
        return self.entries.get(identifier) or named(self.entries.values(), identifier)

    def readable(self, identifier: str) -> TerminalEntry:
        """Return the terminal with this id or name. Raises `RpcError` (-32002) if there is none."""
        entry = self.find(identifier)
        if entry is None:
            raise self._no_such(identifier)
        self._confirm(entry)
        return entry

    def owned(self, identifier: str, what: str) -> TerminalEntry:
        """Return a terminal to be changed. Raises `RpcError` (-32602) if it is the user's."""
        entry = self.readable(identifier)
        if entry.is_users:
            raise RpcError(
                INVALID_PARAMS,
                f"terminal {quote(identifier)} cannot be {what}: the user owns it, since it was "
                "promoted; its output can still be read, and its id released",
            )
        return entry

    def calls_showing(self, identifier: str) -> list[str]:
        return self.tool_calls.calls_showing(identifier)

    def release(self, identifier: str) -> TerminalEntry | None:
        """Make a terminal's id invalid; None if it was before. Raises `RpcError` (-32002)."""
        entry = self.find(identifier)
        if entry is None:
            if identifier in self._released:
                return None
            raise self._no_such(identifier)
        del self.entries[entry.id]
        self._confirm(entry)
        # The session's record is stored before the terminal's. If the worker dies in between, the
        # next one still has the terminal, and a repeated request releases it.
        self._released[entry.id] = None
        self._changed()
        entry.record_id_release()
        return entry

    @contextmanager
    def observe(self, observer: Observer) -> Iterator[None]:
        """Call `observer` synchronously after each session update during the block."""
        self._observers.add(observer)
        try:
            yield
        finally:
            self._observers.discard(observer)

    def record_update(self, call: str, fields: dict[str, Raw], terminals: list[str] | None) -> None:
        """Record an update of a tool call; `terminals` is None if it has no `content`."""
        for number, record in self.tool_calls.apply(call, fields, terminals):
            self._records.call_changed(number, record)
        changed = self._record_terminal_updates(from_meta(fields.get("_meta")))
        for observer in list(self._observers):
            observer(call, fields, changed)

    def record_terminal_updates(self, updates: Iterable[TerminalUpdate]) -> None:
        if changed := self._record_terminal_updates(updates):
            for observer in list(self._observers):
                observer(None, {}, changed)

    def _record_terminal_updates(self, updates: Iterable[TerminalUpdate]) -> list[str]:
        # Ignore updates of terminals that this host runs: the host knows their output itself.
        return self.agent_terminals.apply(
            update
            for update in updates
            if update.terminal not in self.entries and update.terminal not in self._released
        )

    def _no_such(self, identifier: str) -> RpcError:
        if identifier in self._released:
            what = f"terminal {quote(identifier)} has been released: its id is no longer valid"
            return RpcError(RESOURCE_NOT_FOUND, what)
        return no_such_terminal(self.id, identifier)


def no_such_terminal(session: str, identifier: str) -> RpcError:
    return RpcError(
        RESOURCE_NOT_FOUND,
        f"there is no terminal {quote(identifier)} in session {quote(session)}: "
        "use an id that terminal/create answered for this session",
    )
