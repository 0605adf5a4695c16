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

import trio
from msgspec import Raw

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


class Event:
    """Something that happened, at the time `at` in seconds since 1970; see `EventNotification`."""

    def __init__(
        self,
        event: str,
        *,
        terminal: TerminalInfo | None = None,
        by: str | None = None,
        connection: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        update: Raw | None = None,
    ) -> None:
        self.event: Final = event
        self.at: Final = time.time()
        self.terminal: Final = terminal
        self.by: Final = by
        self.connection: Final = connection
        self.agent: Final = agent
        self.session: Final = session
        # Copied, since a `Raw` keeps the whole message that it is a slice of in memory.
        self.update: Final = (
            update.copy() if update and len(bytes(update)) <= UPDATE_BYTES_MAX else None
        )
        self.size: Final = len(repr(terminal)) + len(bytes(self.update or b""))


class Subscription:
    """The queue of the events that were not read yet, of those that `is_wanted`."""

    def __init__(self, is_wanted: Callable[[Event], bool]) -> None:
        self._is_wanted: Final = is_wanted
        self._queue: deque[Event] = deque()
        self._bytes = 0
        self._dropped = 0
        self._has_events: Final = trio.lowlevel.ParkingLot()

    def put(self, event: Event) -> None:
        if not self._is_wanted(event):
            return
        self._queue.append(event)
        self._bytes += event.size
        while len(self._queue) > QUEUE_MAX or self._bytes > QUEUE_BYTES_MAX:
            self._take()
            self._dropped += 1
        self._has_events.unpark_all()

    async def next(self) -> tuple[Event, int]:
        while not self._queue:
            await self._has_events.park()
        dropped, self._dropped = self._dropped, 0
        return self._take(), dropped

    def _take(self) -> Event:
        event = self._queue.popleft()
        self._bytes -= event.size
        return event


def event_notification(token: str, event: Event, dropped: int) -> EventNotification:
    """Return the notification of an event; `dropped` is how many just before it were dropped."""
    terminal = event.terminal
    notification = EventNotification(
        token=token,
        event=event.event,
        at=round(1000 * event.at),
        terminal=terminal,
        connection=terminal.connection if terminal else event.connection,
        agent=terminal.agent if terminal else event.agent,
        session_id=terminal.session_id if terminal else event.session,
        by=event.by,
        lost=dropped,
    )
    if event.update is not None:
        notification.update = event.update
    return notification


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
        self, is_wanted: Callable[[Event], bool] = lambda _: True
    ) -> Iterator[Subscription]:
        subscription = Subscription(is_wanted)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def publish(self, event: Event) -> None:
        for subscription in self._subscriptions:
            subscription.put(event)

    def publish_terminal(
        self, event: str, entry: TerminalEntry, by: str | None = None, share: str | None = None
    ) -> None:
        """Publish an event about a terminal as it is now, and record it in the audit log."""
        self.record_terminal(event, entry, by, share)
        if self.has_subscribers:
            info = terminal_info(entry, waiting=entry.waiting)
            self.publish(Event(event, terminal=info, by=by))

    def record_terminal(
        self, event: str, entry: TerminalEntry, by: str | None = None, share: str | None = None
    ) -> None:
        self._trail.on_bus_event(event, entry, by, share)
