"""A front end's sight of a session: its tool calls, and the output of the terminals in them.

What is told is told by one task, in messages of `forms`, and only as far as the front end has read
what was told before (`room`): one that does not read costs nothing and slows nobody. What waits
meanwhile is bounded: of tool calls by `Untold`, of output by the terminals' own rings, which are
read by position.

States of a terminal, for one subscriber:

    shown ──a call that shows it is told──▶ told ──all is told, nothing more comes──▶ finished
                                             │ ▲
                               news, 20 times a second at most

- *shown*: a call that is not told yet shows it. It is held from now on: others may forget it.
- *told*: there is something to tell (`due`) or not; a task of its own waits for its news.
- *finished*: only its id is remembered, so that it is not told a second time.

The order: what is told of one call keeps its order; a terminal is told of with, or in v2 before,
the first call that shows it; its end after its output. An update that says that a call has come to
its end waits for what its terminals have printed by then.

It ends when the session's connection has closed and all is told; a terminal that the person has
taken over runs on, and is told up to there.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

import trio
from msgspec import Raw

from acpterm.acp.agent_api import OWN
from acpterm.acp.raw_json import items, members, text
from acpterm.host.sessions.observed import ObservedSession
from acpterm.host.sessions.tool_calls import CALLS_MAX
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.subscribe.backlog import UpdateBacklog, snapshot
from acpterm.host.user.subscribe.encoders import Update, UpdateEncoder
from acpterm.host.user.subscribe.sources import LocalSource, Source, Tombstone, source_of
from acpterm.host.user.subscribe.terminal_cursor import CHUNK_BYTES, TerminalCursor

# Bytes of output of one terminal, in messages one after the other.
READ_BYTES_MAX: Final = 512 * 1024
# Seconds between two looks at one terminal.
POLL_INTERVAL_S: Final = 0.05
# Of terminals that are held for one subscriber alone.
_HELD: Final = 16
# Of finished terminals that are remembered.
_FINISHED: Final = 10_000
_FINAL: Final = (b'"completed"', b'"failed"')


class Subscriber:
    """Who is told of one session."""

    def __init__(
        self, user: UserConnection, session: ObservedSession, form: UpdateEncoder, token: str
    ) -> None:
        self._connection = user
        self._session = session
        self._encoder = form
        self._token = token
        self._backlog = UpdateBacklog(session.tool_calls)
        self._sent: dict[str, None] = {}
        self._cursors: dict[str, TerminalCursor] = {}
        self._due: dict[TerminalCursor, None] = {}
        self._has_news = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Tell of it until it is over."""
        async with trio.open_nursery() as self._nursery:
            for call in self._session.tool_calls.in_order():
                self._add_terminals(call)
                self._backlog.add_all(call)
            self._session.observers.add(self._read_session)
            try:
                self._nursery.start_soon(self._wait_over)
                await self._send_updates()
            finally:
                self._session.observers.discard(self._read_session)
            self._nursery.cancel_scope.cancel()

    async def _wait_over(self) -> None:
        await self._session.closed.wait()
        self._has_news.set()

    # What is learnt: in the agent's task, so nothing is made here.

    def _read_session(self, call: str | None, fields: dict[str, Raw], theirs: list[str]) -> None:
        if call is not None:
            self._add_terminals(call)
            self._backlog.add(call, fields)
        for terminal in theirs:
            shown = self._cursors.get(terminal)
            if shown is None:
                for other in self._session.tool_calls.calls_showing(terminal):
                    self._add_terminals(other)
                    if other != call:
                        self._backlog.add(other, {})
            else:
                self._renew(terminal, shown)
        self._has_news.set()

    def _add_terminals(self, call: str) -> None:
        """Hold the terminals of a call that were not shown before."""
        known = self._session.tool_calls.get(call)
        for terminal in known.terminals if known else ():
            if terminal in self._cursors:
                continue
            source = source_of(terminal, self._session, self._connection.host.registry)
            if source is not None:
                self._cursors[terminal] = TerminalCursor(source)
                self._bound()

    def _renew(self, terminal: str, shown: TerminalCursor) -> None:
        """Learn that the agent has told of a terminal of its own."""
        if shown.source is None or not shown.source.is_retained:
            source = source_of(terminal, self._session, self._connection.host.registry)
            if source is not None:
                # It was forgotten in between: what is told now takes the place of what was.
                shown.replace(source)
        if shown.call is not None:
            self._due[shown] = None

    def _bound(self) -> None:
        """Hold no more than a few terminals that nobody else keeps, and not all ids."""
        if len(self._cursors) <= _HELD:
            return
        alone = [s for s in self._cursors.values() if s.source and not s.source.is_retained]
        for shown in alone[:-_HELD]:
            if shown.source and (shown.source.is_over or not isinstance(shown.source, LocalSource)):
                shown.source = Tombstone(shown.source)
        if len(self._cursors) > 2 * _FINISHED:
            finished = [name for name, shown in self._cursors.items() if shown.source is None]
            for name in finished[:-_FINISHED]:
                del self._cursors[name]

    async def _watch(self, shown: TerminalCursor, source: LocalSource) -> None:
        """Have a terminal told of when there is news, as soon as the news before are told."""
        while not source.is_over:
            if not shown.has_news(source):
                await source.entry.terminal.wait_changed()
            shown.delivered = trio.Event()
            self._due[shown] = None
            self._has_news.set()
            await shown.delivered.wait()
        # It may have ended after it was looked at last.
        self._due[shown] = None
        self._has_news.set()

    # What is told.

    async def _send_updates(self) -> None:
        while True:
            # Before anything is looked at: what comes while something is told is news, too.
            self._has_news = trio.Event()
            if self._is_over():
                break
            await self._connection.sender.drain()
            item = self._backlog.pop()
            if item is not None:
                await self._send_call(*item)
            shown = self._next()
            if shown is not None:
                await self._poll_terminals(shown)
            if item is None and shown is None:
                with trio.move_on_at(min((shown.next for shown in self._due), default=math.inf)):
                    await self._has_news.wait()
        for shown in list(self._cursors.values()):
            await self._send_until_now(shown)

    async def _send_call(self, call: str, fields: Mapping[str, Raw]) -> None:
        known = self._session.tool_calls.get(call)
        in_it = known.terminals if known else []
        content = fields.get("content")
        new = self._new_in(in_it if content is None else _terminals_in(content))
        first = call not in self._sent
        if new and not first and known and self._encoder.needs_whole_call:
            # As it is by now: what waits of it may show others.
            fields, new = snapshot(known), self._new_in(in_it)
            self._backlog.discard(call)
        self._record_sent(call)
        for shown, source in new:
            shown.begin(call, source)
            self._due[shown] = None
            if isinstance(source, LocalSource) and self._nursery:
                self._nursery.start_soon(self._watch, shown, source)
        status = fields.get("status")
        waits = (
            status is not None and bytes(status) in _FINAL and self._terminals_without_update(in_it)
        )
        if waits:
            fields = {name: value for name, value in fields.items() if name != "status"}
        infos = [source.info for _, source in new]
        if fields or infos or first:
            self._notify(self._encoder.call(call, dict(fields), infos, first=first))
        if waits and status is not None:
            for shown in self._terminals_without_update(in_it):
                await self._send_until_now(shown)
            await self._connection.sender.drain()
            self._notify(self._encoder.call(call, {"status": status}, (), first=False))

    def _new_in(self, terminals: Iterable[str]) -> list[tuple[TerminalCursor, Source]]:
        """Give those that no call that was told shows, with what they are read from."""
        return [
            (shown, shown.source)
            for terminal in dict.fromkeys(terminals)
            if (shown := self._cursors.get(terminal)) and shown.call is None and shown.source
        ]

    def _terminals_without_update(self, terminals: Iterable[str]) -> list[TerminalCursor]:
        found = [shown for terminal in terminals if (shown := self._cursors.get(terminal))]
        return [s for s in found if s.call is not None and s.source and s.has_news(s.source)]

    async def _poll_terminals(self, shown: TerminalCursor) -> None:
        """Tell of what has come from a terminal, at most so much."""
        self._due.pop(shown, None)
        for _ in range(READ_BYTES_MAX // CHUNK_BYTES):
            await self._connection.sender.drain()
            if not self._step(shown):
                break
        else:
            self._due[shown] = None
        shown.next = trio.current_time() + POLL_INTERVAL_S
        if shown not in self._due:
            shown.delivered.set()

    async def _send_until_now(self, shown: TerminalCursor) -> None:
        source = shown.source
        if source is not None:
            target = source.length
            while shown.source is source:
                await self._connection.sender.drain()
                if not self._step(shown) or shown.position >= target:
                    break

    def _step(self, shown: TerminalCursor) -> bool:
        """Tell of some output of a terminal, or of its end; whether there is more."""
        updates, more = shown.step(self._encoder)
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

    def _next(self) -> TerminalCursor | None:
        """Give a terminal that is to be told of now."""
        now = trio.current_time()
        return next((shown for shown in self._due if shown.next <= now), None)

    def _is_over(self) -> bool:
        """Whether the agent has gone and nothing is left to tell, but of what runs on."""
        if self._backlog or not self._session.closed.is_set():
            return False
        told = (shown.source for shown in self._cursors.values() if shown.call is not None)
        return all(source is None or source.survives_session for source in told)


def _terminals_in(content: Raw) -> list[str]:
    found = [members(item) for item in items(content) if b"terminal" in bytes(item)]
    ids = [text(item.get("terminalId")) for item in found if text(item.get("type")) == "terminal"]
    return [terminal for terminal in ids if terminal is not None]
