"""What happens in a host, told to whoever listens, without waiting for anybody.

A listener has a queue of `MOST` happenings, each of which holds little. One that does not keep up
loses the oldest, and is told how many. Where nobody listens nothing is made.
"""

import time
from collections import deque
from typing import Final

import trio
from msgspec import Raw

from acpterm.acp.user_api import TerminalInfo

QUEUE_MAX: Final = 1_000
# Bytes of an update that is told: a subscriber to its session is told of those that are longer.
UPDATE_BYTES_MAX: Final = 16 * 1024


class Event:
    """Something that has happened. `at`: seconds since 1970."""

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
        # A copy, which holds nothing of the message; what is long is not told here.
        self.update: Final = (
            update.copy() if update and len(bytes(update)) <= UPDATE_BYTES_MAX else None
        )


class Subscription:
    """One who listens."""

    def __init__(self) -> None:
        self._queue: deque[Event] = deque()
        self._dropped = 0
        self._has_events = trio.Event()

    def put(self, event: Event) -> None:
        """Have something told, when there is time."""
        if len(self._queue) >= QUEUE_MAX:
            self._queue.popleft()
            self._dropped += 1
        self._queue.append(event)
        self._has_events.set()

    async def next(self) -> tuple[Event, int]:
        """Wait for what happened next; and how much was lost before it."""
        while not self._queue:
            self._has_events = trio.Event()
            await self._has_events.wait()
        lost, self._dropped = self._dropped, 0
        return self._queue.popleft(), lost


class EventBus:
    """Who listens in one host."""

    def __init__(self) -> None:
        self.subscriptions: Final[set[Subscription]] = set()

    @property
    def has_subscribers(self) -> bool:
        """Whether anybody listens."""
        return bool(self.subscriptions)

    def publish(self, event: Event) -> None:
        """Tell all who listen."""
        for listener in self.subscriptions:
            listener.put(event)
