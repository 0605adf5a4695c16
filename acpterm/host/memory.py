"""What agents' sessions remember, counted in bytes: for each connection, and for all together.

When there is too much, the sessions that were used longest ago forget: those of the connection that
has too much, or of the one that has the most. So no agent's are forgotten for one that has more.
The session whose message is being handled is the only one that is spared.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

CONNECTION_BYTES: Final = 32 * 1024 * 1024
TOTAL_BYTES: Final = 128 * 1024 * 1024


class Counted(Protocol):
    """What is counted: a session."""

    @property
    def size(self) -> int:
        """Bytes of memory, about."""


C = TypeVar("C", bound=Counted)


class SessionMemory:
    """The sizes of all sessions of a host."""

    def __init__(self) -> None:
        self.total = 0
        self.connections: Final[set[ConnectionMemory[Any]]] = set()

    def limit(self, counting: "ConnectionMemory[Any]") -> None:
        """Have the connections forget that have the most, as far as that is needed.

        Every session may be forgotten, but the one used last of the connection `counting`: its
        message has just been handled.
        """
        if self.is_within_limit():
            return
        for connection in sorted(self.connections, key=lambda one: -one.total):
            connection.forget(self.is_within_limit, spare_last=connection is counting)
            if self.is_within_limit():
                return

    def is_within_limit(self) -> bool:
        """Return whether all sessions together take no more than they may."""
        return self.total <= TOTAL_BYTES


class ConnectionMemory(Generic[C]):
    """The sizes of one connection's sessions, until it is closed.

    `shrink` is called with a session that is to forget what it can, and to be counted again, or
    removed.
    """

    def __init__(self, memory: SessionMemory, shrink: Callable[[C], None]) -> None:
        self.total = 0
        self._memory: Final = memory
        self._shrink = shrink
        # Those used longest ago first.
        self._sizes: Final[OrderedDict[C, int]] = OrderedDict()
        memory.connections.add(self)

    def count(self, session: C) -> None:
        """Count a session that may have changed; have others forget if that is too much."""
        self._add(session.size - self._sizes.get(session, 0))
        self._sizes[session] = session.size
        self._sizes.move_to_end(session)
        self.forget(lambda: self.total <= CONNECTION_BYTES, spare_last=True)
        self._memory.limit(self)

    def recount(self, session: C) -> None:
        """Count a session that has shrunk."""
        self._add(session.size - self._sizes[session])
        self._sizes[session] = session.size

    def remove(self, session: C) -> None:
        """Count a session no more."""
        self._add(-self._sizes.pop(session, 0))

    def forget(self, is_enough: Callable[[], bool], *, spare_last: bool) -> None:
        """Have sessions forget until it is enough; with `spare_last` not the one used last."""
        # Called for each message: the copy is made only when something has to go.
        if is_enough():
            return
        sessions = list(self._sizes)
        for session in sessions[:-1] if spare_last else sessions:
            self._shrink(session)
            if is_enough():
                return

    def close(self) -> None:
        """Count none of these sessions any more."""
        self._add(-self.total)
        self._sizes.clear()
        self._memory.connections.discard(self)
        # It refers to the connection, which is to be freed at once.
        self._shrink = lambda _: None

    def _add(self, size: int) -> None:
        self.total += size
        self._memory.total += size
