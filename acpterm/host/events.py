"""The event bus: publishes the events of a host to subscriptions, without waiting for readers.

A subscription queues at most `QUEUE_MAX` events and `QUEUE_BYTES_MAX` bytes. If its reader does not
keep up, the oldest events are dropped, and the reader gets their number. While there is no
subscription, no event about a terminal or a tool call is made, since that takes time.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import trio
from msgspec import Raw, UnsetType

from acpterm.acp.user_api import TerminalInfo
from acpterm.acp.user_streams import EventNotification
from acpterm.host.audit_trail import AuditTrail
from acpterm.host.entry import TerminalEntry
from acpterm.host.terminal_info import terminal_info

QUEUE_MAX: Final = 1_000
QUEUE_BYTES_MAX: Final = 4 * 1024 * 1024
# An event contains a session update of at most this many bytes. Longer updates are sent only to the
# session's own subscribers (`user.subscribe`).
UPDATE_BYTES_MAX: Final = 16 * 1024


def new_event(
    kind: str,
    *,
    terminal: TerminalInfo | None = None,
    by: str | None = None,
    connection: str | None = None,
    agent: str | None = None,
    session: str | None = None,
    update: Raw | None = None,
) -> EventNotification:
    """Return an event that happens now; its token is that of each subscription."""
    if terminal is not None:
        connection, agent, session = terminal.connection, terminal.agent, terminal.session_id
    event = EventNotification("", kind, round(1000 * time.time()), terminal)
    event.connection, event.agent, event.session_id, event.by = connection, agent, session, by
    if update is not None and len(bytes(update)) <= UPDATE_BYTES_MAX:
        # Copied, since a `Raw` keeps the whole message that it is a slice of in memory.
        event.update = update.copy()
    return event


def _size(event: EventNotification) -> int:
    update = 0 if isinstance(event.update, UnsetType) else len(bytes(event.update))
    return len(repr(event.terminal)) + update


class Subscription:
    """The queue of the events that were not read yet, of those that `is_wanted`."""

    def __init__(self, is_wanted: Callable[[EventNotification], bool]) -> None:
        self._is_wanted: Final = is_wanted
        self._queue: deque[tuple[EventNotification, int]] = deque()
        self._bytes = 0
        self._dropped = 0
        self._has_events: Final = trio.lowlevel.ParkingLot()

    def put(self, event: EventNotification) -> None:
        if not self._is_wanted(event):
            return
        size = _size(event)
        self._queue.append((event, size))
        self._bytes += size
        while len(self._queue) > QUEUE_MAX or self._bytes > QUEUE_BYTES_MAX:
            self._take()
            self._dropped += 1
        self._has_events.unpark_all()

    async def next(self) -> EventNotification:
        """Wait for the next event; its `lost` is the number of events dropped just before it."""
        while not self._queue:
            await self._has_events.park()
        dropped, self._dropped = self._dropped, 0
        # Other subscriptions have the same object.
        return msgspec.structs.replace(self._take(), lost=dropped)

    def _take(self) -> EventNotification:
        event, size = self._queue.popleft()
        self._bytes -= size
        return event


class EventBus:
    """The event bus of one host. Events about terminals are also written to the audit log."""

    def __init__(self, trail: AuditTrail) -> None:
        self._trail: Final = trail
        self._subscriptions: Final[set[Subscription]] = set()

    @property
    def has_subscribers(self) -> bool:
        return bool(self._subscriptions)

    @contextmanager
    def subscribe(
        self, is_wanted: Callable[[EventNotification], bool] = lambda _: True
    ) -> Iterator[Subscription]:
        subscription = Subscription(is_wanted)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def publish(self, event: EventNotification) -> None:
        for subscription in self._subscriptions:
            subscription.put(event)

    def publish_terminal(
        self, event: str, entry: TerminalEntry, by: str | None = None, share: str | None = None
    ) -> None:
        """Publish an event about a terminal as it is now, and record it in the audit log."""
        self.record_terminal(event, entry, by, share)
        if self.has_subscribers:
            info = terminal_info(entry, waiting=entry.waiting)
            self.publish(new_event(event, terminal=info, by=by))

    def record_terminal(
        self, event: str, entry: TerminalEntry, by: str | None = None, share: str | None = None
    ) -> None:
        self._trail.on_bus_event(event, entry, by, share)
