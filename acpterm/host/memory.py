"""Limits on the memory of agents' sessions: per connection, and for all connections together.

To *shrink* a session is to free some or all of the memory that it takes. If a connection exceeds
its own limit, `CONNECTION_BYTES`, its least recently used sessions are shrunk. If all connections
together exceed the total limit, `TOTAL_BYTES`, sessions of the connection that takes the most
memory are shrunk first. So an agent that takes little memory loses no data because of an agent that
takes more. The session whose message is being handled is never shrunk.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from acpterm.host.sessions.session import Session

CONNECTION_BYTES: Final = 32 * 1024 * 1024
TOTAL_BYTES: Final = 128 * 1024 * 1024


class SessionMemory:
    """Counts the memory of all agents' sessions of a host; `total` is their sum in bytes."""

    def __init__(self) -> None:
        self.total = 0
        self.connections: Final[set[ConnectionMemory]] = set()

    def limit(self, counting: "ConnectionMemory") -> None:
        """Shrink sessions, of the largest connection first, to `TOTAL_BYTES`."""
        # The session that `counting` used last is spared: its message is being handled.
        if self.is_within_limit():
            return
        for connection in sorted(self.connections, key=lambda one: -one.total):
            connection.shrink(self.is_within_limit, spare_last=connection is counting)
            if self.is_within_limit():
                return

    def is_within_limit(self) -> bool:
        return self.total <= TOTAL_BYTES


class ConnectionMemory:
    """Counts the memory of one connection's sessions; `shrink` frees some."""

    def __init__(self, memory: SessionMemory, shrink: Callable[[Session], None]) -> None:
        self.total = 0
        self._memory: Final = memory
        self._shrink = shrink
        # The least recently used session first.
        self._sizes: Final[OrderedDict[Session, int]] = OrderedDict()
        memory.connections.add(self)

    def count(self, session: Session) -> None:
        """Count a session that was just used; shrink others if a limit is exceeded."""
        self._add(session.size - self._sizes.get(session, 0))
        self._sizes[session] = session.size
        self._sizes.move_to_end(session)
        self.shrink(lambda: self.total <= CONNECTION_BYTES, spare_last=True)
        self._memory.limit(self)

    def recount(self, session: Session) -> None:
        """Count a shrunk session again; it keeps its place in the order of last use."""
        self._add(session.size - self._sizes[session])
        self._sizes[session] = session.size

    def remove(self, session: Session) -> None:
        self._add(-self._sizes.pop(session, 0))

    def shrink(self, is_enough: Callable[[], bool], *, spare_last: bool) -> None:
        """Shrink sessions, the least recently used first, until `is_enough()`."""
        # Called for each message: copy the list only if a session must be shrunk.
        if is_enough():
            return
        sessions = list(self._sizes)
        for session in sessions[:-1] if spare_last else sessions:
            self._shrink(session)
            if is_enough():
                return

    def close(self) -> None:
        self._add(-self.total)
        self._sizes.clear()
        self._memory.connections.discard(self)
        # `shrink` refers to the connection: drop it, so that the connection is freed at once.
        self._shrink = lambda _: None

    def _add(self, size: int) -> None:
        self.total += size
        self._memory.total += size
