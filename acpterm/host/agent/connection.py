"""Who is at the other end of a connection, and what is theirs: sessions and terminals.

A caller sees nothing of other callers, and in each of its sessions nothing of the others: ids are
looked up in the caller's session of that name, so an id from elsewhere is one that never was.

States: *present*, then, by `leave`, *gone*: all its terminals are released, once and for all, and
one whose creation was under way is released when it comes.
"""

import itertools
import secrets
from collections.abc import Iterable
from typing import Final, Protocol

from acpterm.host.agent.creates import Creates
from acpterm.host.agent.relay_parent import agent_behind
from acpterm.host.agent.session import Session, SessionState
from acpterm.host.entry import AgentInfo, TerminalEntry
from acpterm.host.exit_status import gives_signal_code
from acpterm.host.host_state import HostState
from acpterm.host.launch.request import LaunchRequest
from acpterm.host.launch.validation import DirectoryCache
from acpterm.host.memory import ConnectionMemory
from acpterm.host.server.sender import Sender
from acpterm.host.state.records import (
    ConnectionRecord,
    ContextRecord,
    SessionRecord,
    TerminalRecord,
    ToolCallRecord,
)
from acpterm.host.state.store import connection_key
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError, quote
from acpterm.pty import processes
from acpterm.runtime.exec_context import ExecContext
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal

SESSIONS_MAX: Final = 10_000
_SECRET_BYTES: Final = 32
_SESSION_ID: Final = 4096


class Resumer(Protocol):
    """See `resumption.Resumption`."""

    def resume(self, fresh: "AgentConnection", secret: str) -> "AgentConnection | None":
        """Have the transport of `fresh` serve the connection of that secret, if there is one."""


class AgentConnection:
    """One connection's agent."""

    def __init__(
        self,
        context: ExecContext,
        host: HostState,
        connection: str,
        resumption: "Resumer",
        secret: str | None = None,
        *,
        holders: Iterable[tuple[int, float]] = (),
    ) -> None:
        self.context = context
        self.holders = list(holders)
        """Pid and start time of the processes at the other end: the first has connected."""
        self.secret: Final = secret or secrets.token_hex(_SECRET_BYTES)
        """What another connection takes the place of this one with. Never logged."""
        self.resumption: Final[Resumer] = resumption
        self.creates: Final = Creates()
        self.host: Final = host
        self.settings: Final = host.settings
        self.pool: Final = host.pool
        self.agent: Final = AgentInfo(connection)
        self.sessions: Final[dict[str, Session]] = {}
        self.directories: Final = DirectoryCache()
        self.sender: Final = Sender()
        self._memory: Final = ConnectionMemory(host.session_memory, self._shrink)
        self._gone = False
        self._key: Final = connection_key(connection)
        self._numbers = itertools.count()

    @property
    def signal_code(self) -> bool:
        """Whether this agent is sent an exit code on death by a signal."""
        return gives_signal_code(self.settings, self.agent.name)

    def drain(self) -> None:
        """Store what has changed: an answer that tells of it is about to be sent."""
        self.host.state.flush()

    def session(self, identifier: str) -> Session:
        """Give the session of that name; a new one, at its first use.

        Raises `RpcError` (-32602) for a name that is longer than any is.
        """
        if len(identifier) > _SESSION_ID:
            raise RpcError(
                INVALID_PARAMS,
                f"sessionId {quote(identifier)} has {len(identifier)} characters: it may have "
                f"{_SESSION_ID} at most",
            )
        if (session := self.sessions.get(identifier)) is not None:
            return session
        # An agent need not have sent `initialize`, which stores the connection too.
        self.mark_changed()
        return self._new_session(identifier, next(self._numbers))

    def _new_session(self, identifier: str, number: int) -> Session:
        state = SessionState(self.host.state, self.agent.connection_id, number)
        return Session(identifier, self.agent, state, self.creates)

    def add_relayed_agent(self) -> None:
        """Count the agent that the process which connected speaks for as a holder."""
        relay = processes.identity(self.holders[0][0]) if self.holders else None
        if relay is None or relay.started != self.holders[0][1]:
            return
        if agent := agent_behind(relay):
            self.holders = [self.holders[0], (agent.pid, agent.started)]

    def mark_changed(self) -> None:
        """Have the connection's record stored, before the next answer at the latest."""
        self.host.state.changed(self._key, self._record)

    def _record(self) -> bytes:
        return ConnectionRecord(
            secret=self.secret,
            agent=self.agent.name,
            context=ContextRecord.from_context(self.context),
            holders=self.holders,
        ).encode()

    def restore_session(
        self, number: int, record: SessionRecord, calls: Iterable[tuple[int, ToolCallRecord]]
    ) -> None:
        """Take a session over from the worker before."""
        session = self.sessions[record.id] = self._new_session(record.id, number)
        session.restore(record, calls)
        self.remember(session)
        self._numbers = itertools.count(max(number + 1, next(self._numbers)))

    def restore_terminal(self, session: Session, entry: TerminalEntry) -> None:
        """Take a terminal over from the worker before."""
        self.sessions.setdefault(session.id, session).add(entry)
        self.creates.add(entry)

    def owned(self, session: Session) -> None:
        """Remember a session that has something to remember.

        There is room for `SESSIONS`: then the oldest that has no terminal goes, and is from then on
        one that never was. Raises `RpcError` (-32603) when all of them have one.
        """
        if session.id not in self.sessions and len(self.sessions) >= SESSIONS_MAX:
            for other in self.sessions.values():
                if not other.entries:
                    break
            else:
                raise RpcError(
                    INTERNAL_ERROR,
                    f"{SESSIONS_MAX} sessions of this connection have terminals: "
                    "release some of them",
                )
            self._drop(other)
        if session.id not in self.sessions:
            self.sessions[session.id] = session
            session.store()
            self.remember(session)

    def remember(self, session: Session) -> None:
        """Count what a session remembers; others that were used longer ago forget for it."""
        if not self._gone and self.sessions.get(session.id) is session:
            self._memory.count(session)

    def _shrink(self, session: Session) -> None:
        if session.entries:
            session.forget_updates()
            self._memory.recount(session)
        else:
            self._drop(session)

    def _drop(self, session: Session) -> None:
        session.closed.set()
        del self.sessions[session.id]
        session.forget()
        self._memory.remove(session)

    def add(
        self, session: Session, terminal: Terminal, order: LaunchRequest, record: TerminalRecord
    ) -> None:
        """Hold a terminal that was just made; if the caller is gone, release it."""
        # It was remembered when it was asked for, and may have been forgotten while it was made.
        if session.id not in self.sessions:
            self.sessions[session.id] = session
            if not self._gone:
                session.store()
        session = self.sessions[session.id]
        entry = TerminalEntry(terminal, record, self.host.state, session)
        session.add(entry)
        self.creates.add(entry)
        self.host.add(entry, order.env)
        if self._gone:
            self.release(session, terminal.id, EndedBy.DISCONNECT)

    def release(self, session: Session, identifier: str, by: EndedBy) -> Terminal | None:
        """Release a terminal: give it, or None if nothing ends by that. Raises `RpcError`.

        One that the person has taken over runs on.
        """
        entry = session.release(identifier)
        self.remember(session)
        if entry is None or entry.is_users:
            return None
        self.host.registry.release(entry, by)
        return entry.terminal

    def close(self) -> None:
        """Release all that is left. Can be repeated."""
        if self._gone:
            return
        self._gone = True
        self._memory.close()
        for session in self.sessions.values():
            for identifier in list(session.entries):
                self.release(session, identifier, EndedBy.DISCONNECT)
            session.closed.set()
            session.forget()
        self.host.state.removed(self._key)
