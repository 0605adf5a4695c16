"""What happens in a host, told to whoever listens, without waiting for anybody.

A listener has a queue of `MOST` happenings. One that does not keep up loses the oldest, and is told
how many. Where nobody listens nothing is made.
"""

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import trio

if TYPE_CHECKING:
    from acpterm.host.roster import Entry

MOST: Final = 1_000


class Happening:
    """Something that has happened. `at`: seconds since 1970."""

    def __init__(
        self,
        event: str,
        *,
        entry: "Entry | None" = None,
        by: str | None = None,
        connection: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        update: Any = None,
    ) -> None:
        self.event: Final = event
        self.at: Final = time.time()
        self.entry: Final = entry
        self.by: Final = by
        self.connection: Final = connection
        self.agent: Final = agent
        self.session: Final = session
        self.update: Final = update


class Listener:
    """One who listens."""

    def __init__(self) -> None:
        self._queue: deque[Happening] = deque()
        self._lost = 0
        self._news = trio.Event()

    def take(self, happening: Happening) -> None:
        """Have something told, when there is time."""
        if len(self._queue) >= MOST:
            self._queue.popleft()
            self._lost += 1
        self._queue.append(happening)
        self._news.set()

    async def next(self) -> tuple[Happening, int]:
        """Wait for what happened next; and how much was lost before it."""
        while not self._queue:
            self._news = trio.Event()
            await self._news.wait()
        lost, self._lost = self._lost, 0
        return self._queue.popleft(), lost


class Bus:
    """Who listens in one host."""

    def __init__(self) -> None:
        self.listeners: Final[set[Listener]] = set()

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self.listeners)

    def publish(self, happening: Happening) -> None:
        """Tell all who listen."""
        for listener in self.listeners:
            listener.take(happening)
