"""One subscription to a session: sends its tool calls, and the output of the terminals in them.

A single task sends all updates, encoded by an `UpdateEncoder`. It waits for the send queue to drain
first, so a client that stops reading takes no memory and delays no other client. Pending updates of
tool calls are bounded by `UpdateBacklog`. Pending output stays in the rings of the terminals, which
are read by position.

States of a terminal, for one subscriber:

    known ──a call that shows it is sent──▶ sent ──all is sent, nothing more comes──▶ finished
                                            │  ▲
                              output, at most 20 times a second

- *known*: a call that is still queued shows the terminal. The subscription keeps a reference to the
  terminal from now on, since the registry may forget it.
- *sent*: a call that was sent shows the terminal. The terminal is *due* while it has output or an
  end to send; a separate task for each terminal of this host waits for that.
- *finished*: everything was sent. Only the terminal's id is kept, so that it is not sent again.

Order: the updates of one call keep their order. A terminal is described in the first call that
shows it (in v2, just before the call), and its end follows its output. The status that completes a
call is sent after the output that the call's terminals have printed so far.

The subscription ends when the session is closed and everything is sent. A terminal that the user
owns keeps running; its output is sent up to the end of the subscription.

States of an `UpdateBacklog`, which merges the updates of a call if there are many:

    following ──more than `bytes_max` queued──▶ behind ──all is sent──▶ following

- *following*: the updates are queued unchanged, in order.
- *behind*: for each changed tool call, only the names of the changed members are queued, in the
  order in which the calls first changed. The values are read from the session when the call is
  sent, so the queue is bounded by the number of calls that the session retains.

If the session has tool calls when the subscription begins, the state is *behind*, with all of them.

Sources, the terminals that a subscriber reads output from:

- `LocalSource`: a terminal of this host.
- `AgentSource`: a terminal that the agent runs itself and describes in session updates.
- `Tombstone`: what is left of a forgotten terminal of either kind.

A source is read by position. `generation` is how many times all of the output was replaced;
positions begin at 0 each time. `is_over`: there will be no more output, and no change of `end`.
`survives_session`: the terminal may run on after the agent's connection has closed. `is_retained`:
the host still retains the terminal, and not only this source refers to it.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec
import trio
from msgspec import Raw

from acpterm.acp.agent_meta import OWN
from acpterm.acp.raw_json import items, members, text
from acpterm.acp.terminal_updates import Info, ProgramExit
from acpterm.host.entry import TerminalEntry
from acpterm.host.registry import TerminalRegistry
from acpterm.host.sessions import tool_calls
from acpterm.host.sessions.agent_terminals import AgentTerminal
from acpterm.host.sessions.session import Session
from acpterm.host.sessions.tool_calls import CALLS_MAX, RecordedToolCall, ToolCalls
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.subscribe.encoders import Update, UpdateEncoder
from acpterm.jsonrpc import is_utf8_encodable
from acpterm.terminal.private_ring import Slice

# Maximum bytes of output in one message.
CHUNK_BYTES: Final = 32 * 1024
# How many bytes of one terminal's output are sent at most in one turn; then others get a turn.
TURN_BYTES_MAX: Final = 512 * 1024
# The minimum time between two turns of one terminal.
POLL_INTERVAL_S: Final = 0.05
# How many terminals that only this subscriber refers to are kept in memory.
_HELD_MAX: Final = 16
# How many ids of finished terminals are left when the oldest are dropped.
_FINISHED_MAX: Final = 10_000
_FINAL_STATUSES: Final = (b'"completed"', b'"failed"')

# Maximum bytes of queued updates, including an overhead for each update.
BACKLOG_BYTES_MAX: Final = 256 * 1024
_UPDATE_OVERHEAD_BYTES: Final = 256

# The members of a tool call that subscribers get.
MEMBER_NAMES: Final = (*tool_calls.MEMBER_NAMES, "_meta")


class LocalSource:
    generation: Final = 0

    def __init__(self, entry: TerminalEntry, registry: TerminalRegistry) -> None:
        self.entry: Final = entry
        self._registry = registry

    @property
    def info(self) -> Info:
        command, cwd = self.entry.command, self.entry.cwd
        return Info(
            self.entry.id,
            cwd if is_utf8_encodable(cwd) else None,
            command if is_utf8_encodable(command) else None,
        )

    @property
    def length(self) -> int:
        return self.entry.terminal.ring.end

    @property
    def end(self) -> ProgramExit | None:
        status = self.entry.terminal.exit
        return None if status is None else ProgramExit(status.code, status.signal)

    @property
    def is_over(self) -> bool:
        return self.entry.terminal.is_closed

    @property
    def survives_session(self) -> bool:
        return self.entry.is_users

    @property
    def is_retained(self) -> bool:
        return self._registry.get(self.entry.id) is self.entry

    def read(self, since: int, max_bytes: int) -> Slice:
        return self.entry.terminal.ring.read(since, max_bytes)


class AgentSource:
    is_over: Final = False
    survives_session: Final = True

    def __init__(self, terminal: AgentTerminal) -> None:
        self.terminal: Final = terminal

    @property
    def info(self) -> Info:
        return Info(self.terminal.id, self.terminal.cwd, self.terminal.command)

    @property
    def generation(self) -> int:
        return self.terminal.generation

    @property
    def length(self) -> int:
        return self.terminal.ring.end

    @property
    def end(self) -> ProgramExit | None:
        return self.terminal.end

    @property
    def is_retained(self) -> bool:
        return not self.terminal.forgotten

    def read(self, since: int, max_bytes: int) -> Slice:
        return self.terminal.ring.read(since, max_bytes)


class Tombstone:
    """Replaces the source of a terminal that the host no longer retains: has no output."""

    # `is_retained` is True, so that no other tombstone replaces this one.

    is_over: Final = True
    survives_session: Final = True
    is_retained: Final = True

    def __init__(self, source: "Source") -> None:
        self.info: Final[Info] = source.info
        self.generation: Final[int] = source.generation
        self.length: Final[int] = source.length
        self.end: Final[ProgramExit | None] = source.end

    def read(self, since: int, max_bytes: int) -> Slice:
        del max_bytes
        return Slice(b"", self.length, self.length - since)


Source: TypeAlias = LocalSource | AgentSource | Tombstone


def source_of(terminal: str, session: Session, registry: TerminalRegistry) -> Source | None:
    """Return a source for a terminal of `session`; None if the session has no such terminal."""
    entry = registry.get(terminal)
    if entry is not None:
        return LocalSource(entry, registry) if entry.session is session else None
    displayed = session.agent_terminals.get(terminal)
    return None if displayed is None else AgentSource(displayed)


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


class TerminalCursor:
    """What one subscriber was sent about one terminal: output, and how its program ended."""

    def __init__(self, source: Source) -> None:
        self.source: Source | None = source
        """The terminal to read from; None once everything was sent."""
        self.call: str | None = None
        """The id of the first tool call sent that shows the terminal; None until one is sent."""
        self.position = 0
        self._generation = 0
        self._end: ProgramExit | None = None
        self.next_turn = -math.inf
        self.delivered: Final = trio.lowlevel.ParkingLot()
        """Unparked when the updates for which the terminal was due have been sent."""

    def begin(self, call: str, source: Source) -> None:
        """Let `step` return updates: `call`, which shows the terminal, is about to be sent."""
        self.call, self._generation = call, source.generation

    def replace(self, source: Source) -> None:
        """Start again at the beginning of another source; its output replaces all that was sent."""
        self.source, self._generation, self.position = source, -1, 0

    def has_updates(self, source: Source) -> bool:
        sent = self.position, self._generation, self._end
        return sent != (source.length, source.generation, source.end)

    def step(self, encoder: UpdateEncoder) -> tuple[Iterable[Update], bool]:
        """Encode the next chunk, or the end; return also whether more can be sent now."""
        source, call = self.source, self.call
        if source is None or call is None:
            return (), False
        terminal = source.info.terminal
        replaced = source.generation != self._generation
        if replaced:
            self._generation, self.position = source.generation, 0
        updates = []
        part = source.read(self.position, CHUNK_BYTES)
        self.position = part.position + len(part.data)
        if part.data or part.lost or replaced:
            updates += encoder.output(call, terminal, part.data, lost=part.lost, replace=replaced)
        if self.position < source.length:
            return updates, True
        if source.end != self._end:
            self._end = source.end
            updates += encoder.ended(call, terminal, source.end)
        if source.is_over:
            self.source = None
            encoder.forget(terminal)
        return updates, False


class Subscriber:
    def __init__(
        self,
        user: UserConnection,
        session: Session,
        encoder: UpdateEncoder,
        token: str,
        *,
        backlog_bytes_max: int = BACKLOG_BYTES_MAX,
    ) -> None:
        self._connection = user
        self._session = session
        self._encoder = encoder
        self._token = token
        self._backlog = UpdateBacklog(session.tool_calls, backlog_bytes_max)
        self._sent: dict[str, None] = {}
        self._cursors: dict[str, TerminalCursor] = {}
        self._due: dict[TerminalCursor, None] = {}
        self._changed: Final = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            for call in self._session.tool_calls.in_order():
                self._add_terminals(call)
                self._backlog.add_all(call)
            with self._session.observe(self._record_update):
                self._nursery.start_soon(self._wake_when_closed)
                await self._send_updates()
            self._nursery.cancel_scope.cancel()

    async def _wake_when_closed(self) -> None:
        await self._session.closed.wait()
        self._changed.unpark_all()

    # Recording of updates. It runs in the task of the agent's connection, so it must be fast:
    # nothing is encoded or sent here.

    def _record_update(
        self, call: str | None, fields: dict[str, Raw], agent_terminals: list[str]
    ) -> None:
        if call is not None:
            self._add_terminals(call)
            self._backlog.add(call, fields)
        for terminal in agent_terminals:
            cursor = self._cursors.get(terminal)
            if cursor is None:
                for other in self._session.tool_calls.calls_showing(terminal):
                    self._add_terminals(other)
                    if other != call:
                        self._backlog.add(other, {})
            else:
                self._renew(terminal, cursor)
        self._changed.unpark_all()

    def _add_terminals(self, call: str) -> None:
        known = self._session.tool_calls.get(call)
        for terminal in known.terminals if known else ():
            if terminal in self._cursors:
                continue
            source = source_of(terminal, self._session, self._connection.registry)
            if source is not None:
                self._cursors[terminal] = TerminalCursor(source)
                self._remove_surplus()

    def _renew(self, terminal: str, cursor: TerminalCursor) -> None:
        """Let the client get the new output of a terminal that the agent runs itself."""
        old = cursor.source
        if old is None or isinstance(old, Tombstone) or not old.is_retained:
            source = source_of(terminal, self._session, self._connection.registry)
            if source is not None:
                # The session has forgotten the terminal meanwhile, so its output begins again.
                cursor.replace(source)
        if cursor.call is not None:
            self._due[cursor] = None

    def _remove_surplus(self) -> None:
        """Bound the memory of terminals that only this subscriber refers to."""
        if len(self._cursors) <= _HELD_MAX:
            return
        alone = [c for c in self._cursors.values() if c.source and not c.source.is_retained]
        for cursor in alone[:-_HELD_MAX]:
            source = cursor.source
            if source and (source.is_over or not isinstance(source, LocalSource)):
                cursor.source = Tombstone(source)
        if len(self._cursors) > 2 * _FINISHED_MAX:
            finished = [name for name, cursor in self._cursors.items() if cursor.source is None]
            for name in finished[:-_FINISHED_MAX]:
                del self._cursors[name]

    async def _watch(self, cursor: TerminalCursor, source: LocalSource) -> None:
        """Make the cursor due whenever there are updates, and wait until they were sent."""
        while not source.is_over:
            if not cursor.has_updates(source):
                await source.entry.terminal.wait_changed()
            self._due[cursor] = None
            self._changed.unpark_all()
            await cursor.delivered.park()
        # The terminal may have ended after its last turn.
        self._due[cursor] = None
        self._changed.unpark_all()

    # Sending

    async def _send_updates(self) -> None:
        while True:
            await self._connection.sender.drain()
            if self._is_over():
                break
            item = self._backlog.pop()
            if item is not None:
                await self._send_call(*item)
            cursor = self._next_due()
            if cursor is not None:
                await self._send_turn(cursor)
            if item is None and cursor is None:
                # Nothing was awaited since the drain, so no change is missed.
                with trio.move_on_at(min((due.next_turn for due in self._due), default=math.inf)):
                    await self._changed.park()
        for cursor in list(self._cursors.values()):
            await self._send_current_output(cursor)

    async def _send_call(self, call: str, fields: Mapping[str, Raw]) -> None:
        known = self._session.tool_calls.get(call)
        all_terminals = known.terminals if known else []
        content = fields.get("content")
        new = self._unshown(all_terminals if content is None else _terminals_in(content))
        first = call not in self._sent
        if new and not first and known and self._encoder.needs_whole_call:
            # Send the whole call. It includes its queued updates, which may show more terminals.
            fields, new = snapshot(known), self._unshown(all_terminals)
            self._backlog.discard(call)
        self._record_sent(call)
        for cursor, source in new:
            cursor.begin(call, source)
            self._due[cursor] = None
            if isinstance(source, LocalSource) and self._nursery:
                self._nursery.start_soon(self._watch, cursor, source)
        status = fields.get("status")
        is_final = status is not None and bytes(status) in _FINAL_STATUSES
        ends_later = is_final and self._with_updates(all_terminals)
        if ends_later:
            fields = {name: value for name, value in fields.items() if name != "status"}
        infos = [source.info for _, source in new]
        if fields or infos or first:
            self._notify(self._encoder.call(call, dict(fields), infos, first=first))
        if ends_later and status is not None:
            for cursor in self._with_updates(all_terminals):
                await self._send_current_output(cursor)
            await self._connection.sender.drain()
            self._notify(self._encoder.call(call, {"status": status}, (), first=False))

    def _unshown(self, terminals: Iterable[str]) -> list[tuple[TerminalCursor, Source]]:
        """Return the cursors and sources of terminals that no call sent to the client shows yet."""
        return [
            (cursor, cursor.source)
            for terminal in dict.fromkeys(terminals)
            if (cursor := self._cursors.get(terminal)) and cursor.call is None and cursor.source
        ]

    def _with_updates(self, terminals: Iterable[str]) -> list[TerminalCursor]:
        """Return the cursors of terminals that a sent call shows, and that have updates to send."""
        found = [cursor for terminal in terminals if (cursor := self._cursors.get(terminal))]
        return [c for c in found if c.call is not None and c.source and c.has_updates(c.source)]

    async def _send_turn(self, cursor: TerminalCursor) -> None:
        self._due.pop(cursor, None)
        for _ in range(TURN_BYTES_MAX // CHUNK_BYTES):
            await self._connection.sender.drain()
            if not self._send_step(cursor):
                break
        else:
            self._due[cursor] = None
        cursor.next_turn = trio.current_time() + POLL_INTERVAL_S
        if cursor not in self._due:
            cursor.delivered.unpark_all()

    async def _send_current_output(self, cursor: TerminalCursor) -> None:
        source = cursor.source
        if source is not None:
            target = source.length
            while cursor.source is source:
                await self._connection.sender.drain()
                if not self._send_step(cursor) or cursor.position >= target:
                    break

    def _send_step(self, cursor: TerminalCursor) -> bool:
        """Send the next chunk, or the end; return whether more output can be sent now."""
        updates, more = cursor.step(self._encoder)
        self._notify(updates)
        return more

    def _notify(self, updates: Iterable[Update]) -> None:
        for update in updates:
            self._connection.sender.notify(
                "session/update",
                {
                    "sessionId": self._session.id,
                    "update": update,
                    "_meta": {OWN: {"token": self._token}},
                },
            )

    def _record_sent(self, call: str) -> None:
        self._sent[call] = None
        if len(self._sent) > 2 * CALLS_MAX:
            calls = self._session.tool_calls
            self._sent = {call: None for call in self._sent if calls.get(call)}

    def _next_due(self) -> TerminalCursor | None:
        now = trio.current_time()
        return next((cursor for cursor in self._due if cursor.next_turn <= now), None)

    def _is_over(self) -> bool:
        """Return whether the session is closed and everything is sent, except what runs on."""
        if self._backlog or not self._session.closed.is_set():
            return False
        sent = (cursor.source for cursor in self._cursors.values() if cursor.call is not None)
        return all(source is None or source.survives_session for source in sent)


def _terminals_in(content: Raw) -> list[str]:
    found = [members(item) for item in items(content) if b"terminal" in bytes(item)]
    ids = [text(item.get("terminalId")) for item in found if text(item.get("type")) == "terminal"]
    return [terminal for terminal in ids if terminal is not None]
