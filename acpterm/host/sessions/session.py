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
from acpterm.host.entry import AgentInfo, SessionOrigin, TerminalEntry
from acpterm.host.names import named
from acpterm.host.sessions.agent_terminals import AgentTerminals
from acpterm.host.sessions.tool_calls import ToolCalls
from acpterm.host.state.records import AgentSessionRecord, ToolCallRecord, pack_text, unpack_text
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


class Session(SessionOrigin):
    """A session of an agent's connection: its terminals, its directory and its tool calls."""

    def __init__(
        self,
        identifier: str,
        agent: AgentInfo,
        number: int,
        writer: StateWriter,
        confirm: Callable[[TerminalEntry], object],
    ) -> None:
        super().__init__(identifier, agent)
        self._number: Final = number
        self._writer: Final = writer
        # Called with each terminal that a request names.
        self._confirm: Final = confirm
        # The next worker gets records from `store` or `restore` to `remove_records`.
        self._is_stored = False
        self.cwd: str | None = None
        """The working directory for `terminal/create` requests without `cwd`; None if not set."""
        self.workspace: str | None = None
        """Where the session's sandboxed programs may write; only the user's client can set it."""
        self.cancelled = 0
        """How many prompt turns of the session were cancelled (by `session/cancel`)."""
        self.entries: Final[dict[str, TerminalEntry]] = {}
        """The session's terminals by id: promoted ones too, but no released ones."""
        self.pending_creates = 0
        self._decisions = SessionDecisions()
        self.tool_calls: Final = ToolCalls()
        self.agent_terminals: Final = AgentTerminals()
        self._observers: Final[set[Observer]] = set()
        self.closed: Final = trio.Event()
        self._released: BoundedDict[str, None] = BoundedDict(_RELEASED_MAX)

    def allowed_prefixes(self, directory: str) -> list[Prefix]:
        return self._decisions.allowed_in(directory)

    def decided(self, question: Question) -> Answer | None:
        """Return the answer to `question` that the user has given for the whole session, if any."""
        return self._decisions.find(question)

    def remember(self, question: Question, answer: Answer) -> None:
        """Remember the answer to a question if the user has given it for the whole session."""
        if self._decisions.remember(question, answer):
            self.changed()

    def cancel(self) -> None:
        self.cancelled += 1
        self.changed()

    def store(self) -> None:
        self._is_stored = True
        self.changed()

    def changed(self) -> None:
        """Store the record before the next response is sent."""
        if self._is_stored:
            self._writer.changed(self._key, lambda: self._record().encode())

    @property
    def _key(self) -> str:
        return session_key(self.agent.connection_id, self._number)

    def _call_changed(self, number: int, record: Callable[[], ToolCallRecord] | None) -> None:
        key = tool_call_key(self.agent.connection_id, self._number, number)
        if record is None:
            self._writer.removed(key)
        elif self._is_stored:
            self._writer.changed(key, lambda: record().encode())

    @property
    def size(self) -> int:
        text = sum(getsizeof(one) for one in (self.id, self.cwd, self.workspace) if one)
        released = _RELEASED_BYTES * len(self._released)
        updates = self.tool_calls.size + self.agent_terminals.size
        return _SESSION_BYTES + text + released + updates + self._decisions.size

    def forget_updates(self) -> None:
        for number in self.tool_calls.forget():
            self._call_changed(number, None)
        self.agent_terminals.forget()

    def remove_records(self) -> None:
        if not self._is_stored:
            return
        self._is_stored = False
        for number in self.tool_calls.numbers():
            self._call_changed(number, None)
        self._writer.removed(self._key)

    def restore(
        self, record: AgentSessionRecord, calls: Iterable[tuple[int, ToolCallRecord]]
    ) -> None:
        self._is_stored = True
        self.cwd = None if record.cwd is None else unpack_text(record.cwd)
        self.workspace = None if record.workspace is None else unpack_text(record.workspace)
        self.cancelled = record.cancelled
        self._released.update(dict.fromkeys(record.released))
        self._decisions = SessionDecisions(
            record.allowed, record.rejected, record.rejected_commands
        )
        self.tool_calls.restore(calls)

    def _record(self) -> AgentSessionRecord:
        ids = reversed(self._released)
        released = [*itertools.islice(ids, _STORED_RELEASED_MAX)][::-1]
        # A longer path cannot be that of a directory.
        is_stored = self.cwd is not None and len(self.cwd) <= _STORED_CWD_BYTES_MAX
        cwd = pack_text(self.cwd) if is_stored and self.cwd else None
        return AgentSessionRecord(
            id=self.id,
            cwd=cwd,
            workspace=None if self.workspace is None else pack_text(self.workspace),
            cancelled=self.cancelled,
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
        self.changed()
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
            self._call_changed(number, record)
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
