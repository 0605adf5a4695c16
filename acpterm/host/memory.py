"""Limits on the memory of agents' sessions: for each connection, and for all together.

Over a limit, the least recently used sessions shrink: those of the connection that exceeds its own
limit, or of the connection that takes the most. So no agent loses anything to one that takes more.
Only the session whose message is being handled is spared.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

CONNECTION_BYTES: Final = 32 * 1024 * 1024
TOTAL_BYTES: Final = 128 * 1024 * 1024


class Counted(Protocol):
    """A session, as far as it is counted."""

    @property
    def size(self) -> int:
        """Approximate bytes of memory."""


C = TypeVar("C", bound=Counted)


class SessionMemory:
    """The sizes of all sessions of a host."""

    def __init__(self) -> None:
        self.total = 0
        self.connections: Final[set[ConnectionMemory[Any]]] = set()

    def limit(self, counting: "ConnectionMemory[Any]") -> None:
        """Shrink sessions until all together are within the limit, the largest connections first.

        The session that `counting` used last is spared: its message has just been handled.
        """
        if self.is_within_limit():
            return
        for connection in sorted(self.connections, key=lambda one: -one.total):
            connection.shrink(self.is_within_limit, spare_last=connection is counting)
            if self.is_within_limit():
                return

    def is_within_limit(self) -> bool:
        """Return whether all sessions together are within the limit."""
        return self.total <= TOTAL_BYTES


class ConnectionMemory(Generic[C]):
    """The sizes of one connection's sessions, until it is closed.

    `shrink` is called with a session that must free memory, and then be recounted or removed.
    """

    def __init__(self, memory: SessionMemory, shrink: Callable[[C], None]) -> None:
        self.total = 0
        self._memory: Final = memory
        self._shrink = shrink
        # The least recently used first.
        self._sizes: Final[OrderedDict[C, int]] = OrderedDict()
        memory.connections.add(self)

    def count(self, session: C) -> None:
        """Count a session that may have changed; shrink others if that exceeds a limit."""
        self._add(session.size - self._sizes.get(session, 0))
        self._sizes[session] = session.size
        self._sizes.move_to_end(session)
        self.shrink(lambda: self.total <= CONNECTION_BYTES, spare_last=True)
        self._memory.limit(self)

    def recount(self, session: C) -> None:
        """Count a session that has shrunk, without marking it as used."""
        self._add(session.size - self._sizes[session])
        self._sizes[session] = session.size

    def remove(self, session: C) -> None:
        """Stop counting a session."""
        self._add(-self._sizes.pop(session, 0))

    def shrink(self, is_enough: Callable[[], bool], *, spare_last: bool) -> None:
        """Shrink sessions until `is_enough`; `spare_last` spares the one that was used last."""
        # Called for each message: copy the list only if a session must shrink.
        if is_enough():
            return
        sessions = list(self._sizes)
        for session in sessions[:-1] if spare_last else sessions:
            self._shrink(session)
            if is_enough():
                return

    def close(self) -> None:
        """Stop counting all of these sessions."""
        self._add(-self.total)
        self._sizes.clear()
        self._memory.connections.discard(self)
        # It refers to the connection, which must be freed at once.
        self._shrink = lambda _: None

    def _add(self, size: int) -> None:
        self.total += size
        self._memory.total += size
