"""One session of one connection: its terminals, and the tool calls that they are shown in.

A terminal's states here: *held* (the agent may use it), *taken* (the person has taken it over: the
agent may look at it, and nothing else), then *released* (its id is known, for a second release and
for errors that say so, and every other use is refused). What becomes of the terminal itself then is
the roster's business.

A session is made by its first use: ACP creates sessions between client and agent, out of sight of
a host. Its folder is told by `_acpterm/session/set`, if at all.
"""

import itertools
from collections import OrderedDict
from collections.abc import Iterable
from sys import getsizeof
from typing import Final

import trio
from msgspec import Raw

from acpterm.acp.terminal_updates import TerminalUpdate, from_meta
from acpterm.host.agent.creates import Creates
from acpterm.host.agent.session_state import SessionState
from acpterm.host.registry import AgentInfo, TerminalEntry
from acpterm.host.sessions.agent_terminals import AgentTerminals
from acpterm.host.sessions.observed import Observer  # noqa: TC001  the type of an attribute
from acpterm.host.sessions.tool_calls import ToolCalls
from acpterm.host.state.records import SessionRecord, ToolCallRecord, pack_text, unpack_text
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quote
from acpterm.terminal.terminal import Terminal

# Of released ids; the oldest are forgotten, and then answered as ids that never were.
_RELEASED_MAX: Final = 10_000
# Of these, the newest that a successor of this worker knows: what is stored is stored again with
# each release, and a release is repeated at once if at all.
_STORED_RELEASED_MAX: Final = 256
_STORED_CWD_BYTES_MAX: Final = 4096
# Bytes that a session, and each released id, takes besides its text.
_SESSION_BYTES: Final = 2048
_RELEASED_BYTES: Final = 160


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
        """The terminals that the agent has itself."""
        self.observers: Final[set[Observer]] = set()
        """Called with the id of each tool call of which something is told, if it is one, with its
        members, and with the ids of the agent's own terminals of which something is told."""
        self.closed: Final = trio.Event()
        """Set when its connection is closed."""
        self._released: OrderedDict[str, None] = OrderedDict()

    @property
    def cwd(self) -> str | None:
        """The directory of commands that name none."""
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
        """Have the session's record stored, before the next answer at the latest."""
        self._state.store(self._record)

    def _changed(self) -> None:
        self._state.changed(self._record)

    @property
    def size(self) -> int:
        """Bytes of memory that it takes, about, without its terminals."""
        text = getsizeof(self.id) + (getsizeof(self._cwd) if self._cwd else 0)
        released = _RELEASED_BYTES * len(self._released)
        return _SESSION_BYTES + text + released + self.tool_calls.size + self.agent_terminals.size

    def forget_updates(self) -> None:
        """Remove the tool calls and the agent's own terminals that its updates described."""
        for number in self.tool_calls.forget():
            self._state.call_changed(number, None)
        self.agent_terminals.forget()

    def forget(self) -> None:
        """Remove what is stored of it."""
        self._state.remove(self.tool_calls.numbers())

    def restore(self, record: SessionRecord, calls: Iterable[tuple[int, ToolCallRecord]]) -> None:
        """Take over what the worker before has stored; `calls` with their numbers."""
        self._state.restored()
        self._cwd = None if record.cwd is None else unpack_text(record.cwd)
        self._cancelled = record.cancelled
        self._released.update(dict.fromkeys(record.released))
        self.tool_calls.restore(calls)

    def _record(self) -> SessionRecord:
        ids = reversed(self._released)
        released = [*itertools.islice(ids, _STORED_RELEASED_MAX)][::-1]
        # A longer one is no directory.
        is_stored = self._cwd is not None and len(self._cwd) <= _STORED_CWD_BYTES_MAX
        cwd = pack_text(self._cwd) if is_stored and self._cwd else None
        return SessionRecord(id=self.id, cwd=cwd, cancelled=self._cancelled, released=released)

    def add(self, entry: TerminalEntry) -> None:
        """Hold a terminal."""
        self.entries[entry.id] = entry

    def readable(self, identifier: str) -> Terminal:
        """Give the terminal of this id, to look at; raises `RpcError` (-32002) if there is none."""
        try:
            entry = self.entries[identifier]
        except KeyError:
            raise self._no_such(identifier) from None
        self._creates.confirm(entry)
        return entry.terminal

    def owned(self, identifier: str, what: str) -> TerminalEntry:
        """Give the terminal of this id, to do something to it: `what`, for the message.

        Raises `RpcError`: -32002 if there is none, -32602 if the person has taken it over.
        """
        self.readable(identifier)
        entry = self.entries[identifier]
        if entry.is_users:
            raise RpcError(
                INVALID_PARAMS,
                f"terminal {quote(identifier)} cannot be {what}: the person has taken it over, "
                "and it is theirs now; its output can still be read, and its id released",
            )
        return entry

    def calls_showing(self, identifier: str) -> list[str]:
        """Give the ids of the tool calls that show a terminal."""
        return self.tool_calls.calls_showing(identifier)

    def release(self, identifier: str) -> TerminalEntry | None:
        """Stop holding a terminal: give it, or None when that has been done before.

        Raises `RpcError` (-32002) for an id that never was this session's.
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
        while len(self._released) > _RELEASED_MAX:
            self._released.popitem(last=False)
        return entry

    def record_update(self, call: str, fields: dict[str, Raw], terminals: list[str] | None) -> None:
        """Take what a `tool_call` or `tool_call_update` says: its members, as they came.

        `terminals`: the ids of those that it shows, or None when it does not say.
        """
        for number, record in self.tool_calls.apply(call, fields, terminals):
            self._state.call_changed(number, record)
        told = self._record_terminal_update(from_meta(fields.get("_meta")))
        for watcher in list(self.observers):
            watcher(call, fields, told)

    def record_terminal_updates(self, notes: Iterable[TerminalUpdate]) -> None:
        """Take what the agent says of terminals of its own, in an update that is about no call."""
        if told := self._record_terminal_update(notes):
            for watcher in list(self.observers):
                watcher(None, {}, told)

    def _record_terminal_update(self, notes: Iterable[TerminalUpdate]) -> list[str]:
        # Of a terminal of ours nobody has to say anything.
        return self.agent_terminals.apply(
            note
            for note in notes
            if note.terminal not in self.entries and note.terminal not in self._released
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
