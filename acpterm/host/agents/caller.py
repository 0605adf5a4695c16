"""Who is at the other end of a connection, and what is theirs: sessions and terminals.

A caller sees nothing of other callers, and in each of its sessions nothing of the others: ids are
looked up in the caller's session of that name, so an id from elsewhere is one that never was.

States: *present*, then, by `leave`, *gone*: all its terminals are released, once and for all, and
one whose creation was under way is released when it comes.
"""

from typing import Final

from acpterm.host.agents.session import Session
from acpterm.host.asker import Asker
from acpterm.host.checks import Folders
from acpterm.host.creation import Order
from acpterm.host.outbox import Outbox
from acpterm.host.roster import Agent, Entry
from acpterm.host.shared import Shared
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError, quoted
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal

SESSIONS: Final = 10_000
_SESSION_ID: Final = 4096


class Caller:
    """One connection's agent."""

    def __init__(self, asker: Asker, shared: Shared, outbox: Outbox, connection: str) -> None:
        self._outbox = outbox
        self.asker = asker
        self.shared: Final = shared
        self.settings: Final = shared.settings
        self.pool: Final = shared.pool
        self.agent: Final = Agent(connection)
        self.sessions: Final[dict[str, Session]] = {}
        self.folders: Final = Folders()
        self._gone = False

    async def room(self) -> None:
        """Wait until the agent has read enough for a large answer to be made."""
        await self._outbox.room()

    def asks(self) -> None:
        """Learn that the agent asks for something: it is not to wait for floods."""
        self.pool.floods.asked()

    def session(self, identifier: str) -> Session:
        """Give the session of that name; a new one, at its first use.

        Raises `RpcError` (-32602) for a name that is longer than any is.
        """
        if len(identifier) > _SESSION_ID:
            raise RpcError(
                INVALID_PARAMS,
                f"sessionId {quoted(identifier)} has {len(identifier)} characters: it may have "
                f"{_SESSION_ID} at most",
            )
        return self.sessions.get(identifier) or Session(identifier, self.agent)

    def own(self, session: Session) -> None:
        """Remember a session that has something to remember.

        There is room for `SESSIONS`: then the oldest that has no terminal goes, and is from then on
        one that never was. Raises `RpcError` (-32603) when all of them have one.
        """
        if session.id not in self.sessions and len(self.sessions) >= SESSIONS:
            for other in self.sessions.values():
                if not other.entries:
                    break
            else:
                raise RpcError(
                    INTERNAL_ERROR,
                    f"{SESSIONS} sessions of this connection have terminals: release some of them",
                )
            other.over.set()
            del self.sessions[other.id]
        self.sessions.setdefault(session.id, session)

    def add(self, session: Session, terminal: Terminal, order: Order, command: str) -> None:
        """Hold a terminal that was just made; if the caller is gone, release it."""
        # It was remembered when it was asked for, and may have been forgotten while it was made.
        session = self.sessions.setdefault(session.id, session)
        entry = Entry(terminal, command=command, cwd=order.cwd, session=session)
        session.add(entry)
        self.shared.add(entry, order.env)
        if self._gone:
            self.release(session, terminal.id, EndedBy.DISCONNECT)

    def release(self, session: Session, identifier: str, by: EndedBy) -> Terminal | None:
        """Release a terminal: give it, or None if nothing ends by that. Raises `RpcError`.

        One that the person has taken over runs on.
        """
        entry = session.release(identifier)
        if entry is None or entry.is_users:
            return None
        self.shared.roster.release(entry, by)
        return entry.terminal

    def leave(self) -> None:
        """Release all that is left. Can be repeated."""
        self._gone = True
        for session in self.sessions.values():
            for identifier in list(session.entries):
                self.release(session, identifier, EndedBy.DISCONNECT)
            session.over.set()
