"""The state of one agent's connection: sessions with their terminals, rights, execution context.

(`server.connection` serves the connection's stream, which may be replaced: see `resumption`.)

An agent can use only its own terminals, and each terminal only in the session that created it:
terminal ids are looked up in the session that a request names, so any other id does not exist. With
the setting `agents_read_user_terminals`, it can also read terminals that the user created.

States: *open*, then *closed* by `close`, which releases all terminals that the user does not own.
If a terminal is being created when `close` is called, it is released as soon as it exists.

Longer than 300 lines because the connection's rights (its profiles and approvers) are in the same
record as the rest of its state, and depend on the processes that use the connection (`holders`). A
separate object for the rights would have to refer back to the connection. Such a reference cycle
would keep a closed connection in memory until the next garbage collection.
"""

import itertools
import secrets
from collections.abc import Iterable
from functools import partial
from typing import Final, Protocol

import trio

from acpterm.acp.approvals import ApproverKind, ApproverRequest
from acpterm.config.profiles import Profile
from acpterm.host.agent.approver import Approver
from acpterm.host.agent.creates import Creates
from acpterm.host.agent.relay_parent import agent_behind
from acpterm.host.agent.session import Session, no_such_terminal
from acpterm.host.agent.session_records import SessionRecords
from acpterm.host.entry import AgentInfo, TerminalEntry
from acpterm.host.host_state import HostState
from acpterm.host.launch.request import LaunchRequest
from acpterm.host.launch.validation import DirectoryCache
from acpterm.host.memory import ConnectionMemory
from acpterm.host.names import named
from acpterm.host.profiles import program_names, programs_of
from acpterm.host.server.dispatch import Sender
from acpterm.host.state.records import (
    ConnectionRecord,
    ContextRecord,
    RightsRecord,
    SessionRecord,
    TerminalRecord,
    ToolCallRecord,
    pack_text,
    unpack_text,
)
from acpterm.host.state.store import connection_key
from acpterm.host.terminal_info import gives_signal_code
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError, quote
from acpterm.pty import processes
from acpterm.runtime.exec_context import ExecContext
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal

SESSIONS_MAX: Final = 10_000
_SECRET_BYTES: Final = 32
# The maximum length of a session's id, in characters.
_SESSION_ID_MAX: Final = 4096


class Resumer(Protocol):
    """Lets an agent's connection continue on another transport. See `resumption.Resumption`."""

    def resume(self, fresh: "AgentConnection", secret: str) -> "AgentConnection | None":
        """Move the transport of the new connection `fresh` to the connection that has `secret`.

        Return the connection that has `secret`. Return None if there is none, or if `fresh` may
        not resume it. Raises `RpcError` (-32600) if `fresh` already has sessions.
        """


class TerminalParams(Protocol):
    """The params of every request about an existing terminal: the session and the terminal."""

    session_id: str
    terminal_id: str


class AgentConnection:
    """The state of one agent's connection.

    `context` is the execution context of the agent's terminals, and `connection` the connection's
    id. `resumption` lets the client continue an earlier connection. `secret` is the stored secret
    of a restored connection; None: generate one. A peer that sends the secret can resume the
    connection. `holders` are the processes that use the connection, each as pid and start time.
    """

    def __init__(
        self,
        context: ExecContext,
        host: HostState,
        connection: str,
        resumption: Resumer,
        secret: str | None = None,
        *,
        holders: Iterable[tuple[int, float]] = (),
    ) -> None:
        self.context = context
        self.secret: Final = secret or secrets.token_hex(_SECRET_BYTES)
        """The secret with which another connection may resume this one. Never logged."""
        self.resumption: Final[Resumer] = resumption
        self.creates: Final = Creates(partial(host.approval_records.forget, connection))
        self.host: Final = host
        self.settings: Final = host.settings
        self.pool: Final = host.pool
        self.agent: Final = AgentInfo(connection)
        self.holders = list(holders)
        self.sessions: Final[dict[str, Session]] = {}
        self.directories: Final = DirectoryCache()
        self.sender: Final = Sender()
        self.programs: list[str] = []
        """The names of the agent's program, by which the profile is selected: that of its
        executable and, if this is an interpreter, that of the script."""
        self.directory = context.cwd
        """The directory that the agent works in, by which the profile is selected: that of the
        process that connected, which the host has read itself."""
        self.chosen_profile: str | None = None
        """The name of the profile that the user has chosen for this connection; None if none."""
        self.requested_profiles: Final[list[str]] = []
        """The names of the profiles that the client has requested, oldest first. They apply in
        addition to the selected one."""
        self._profile: Profile | None = None
        self.event_requests: Final[dict[str, trio.CancelScope]] = {}
        """The cancel scope of each pending request for events, by the request's token. See
        `event_methods`."""
        self.starts: Final[list[float]] = []
        """The times at which the agent has started terminals, in seconds of the boot clock. See
        `host.quotas`."""
        self.expiry = trio.CancelScope()
        """The wait of `approvals.expire_unclaimed`; each call of it replaces the earlier one."""
        self._approver: Approver | None = None
        self._approver_kind: ApproverKind | None = None
        self._elicitor: Approver | None = None
        self._memory: Final = ConnectionMemory(host.session_memory, self._shrink)
        self._closed = False
        self._key: Final = connection_key(connection)
        self._numbers = itertools.count()

    @property
    def id(self) -> str:
        """The connection's id."""
        return self.agent.connection_id

    @property
    def holders(self) -> list[tuple[int, float]]:
        """The processes that use this connection, each as pid and start time.

        The first process opened it; if that process only relays messages, the second process is the
        agent.
        """
        return self._holders

    @holders.setter
    def holders(self, processes: list[tuple[int, float]]) -> None:
        self._holders = processes
        self.agent.process = processes[-1] if processes else None

    @property
    def signal_code(self) -> bool:
        """Whether the exit code of a program ended by signal n is sent as 128 + n, not as null.

        See `terminal_info.gives_signal_code`.
        """
        return gives_signal_code(self.settings, self.agent.name)

    @property
    def profile(self) -> Profile:
        """The profile of the agent. It is selected when this property is first used.

        Raises `RpcError` (-32603) if the user has chosen a profile that does not exist any more, or
        if no profile can be selected (`Profiles.select`).
        """
        if self._profile is None:
            if not self.programs:
                self.programs = programs_of(pid for pid, _ in reversed(self.holders))
            profiles = self.host.policy.profiles
            if self.chosen_profile is None:
                self._profile = profiles.select(self.programs, self.directory)
            else:
                self._profile = self._named_profile(self.chosen_profile, "the user has chosen")
            self.mark_changed()
        return self._profile

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles that apply: the selected one, then those that the client has requested.

        Raises `RpcError` (-32603) as `profile` does, or if a requested profile does not exist any
        more.
        """
        selected = self.profile
        requested = [name for name in self.requested_profiles if name != selected.name]
        return selected, *(self._named_profile(one, "was requested") for one in requested)

    def _named_profile(self, name: str, why: str) -> Profile:
        by_name = self.host.policy.profiles.by_name
        if name not in by_name:
            raise RpcError(
                INTERNAL_ERROR,
                f"no command is run: the profile {quote(name)}, which {why} for this agent, is not "
                f"in the settings any more; there are {', '.join(sorted(by_name))}",
            )
        return by_name[name]

    def request_profile(self, name: str) -> None:
        """Apply the profile `name` in addition to the selected one, until `close`. Idempotent.

        The caller has checked that there is such a profile. Any peer may request this, because an
        additional profile can only make decisions stricter.
        """
        if name not in self.requested_profiles:
            self.requested_profiles.append(name)
            self.mark_changed()

    def default_directory(self, session: Session) -> str:
        """Return the directory for a session's requests that name none."""
        return session.cwd or self.context.cwd

    def workspace(self, session: Session) -> str | None:
        """Return the directory in which a session's sandboxed programs may write.

        If the session has a workspace, return the workspace. If the session has none and the client
        is an approver, return None: an agent that names a session that the approver has not opened
        must not get access to the approver's directory. In all other cases, return the directory of
        the process that connected.
        """
        if session.workspace is None and self._approver is not None:
            return None
        return session.workspace or self.directory

    @property
    def approver(self) -> Approver | None:
        """The observer that sends questions to the client; None if the client is no approver."""
        return self._approver

    @property
    def answerer(self) -> Approver | None:
        """The observer that sends questions to the client; None if the client may not answer them.

        This is `approver` if the client is an approver. Otherwise, this is the observer that
        `add_elicitor` has created: its client may answer, but has no other right of an approver.
        """
        return self._approver or self._elicitor

    def add_elicitor(self) -> None:
        """Let a client that is no approver answer this connection's questions.

        The client shows them to the user itself, as MCP clients can (elicitation). Do nothing
        unless the setting `mcp_elicitation_approves` is on. This right is not stored in the
        connection's record: the client requests it again when it resumes the connection.
        """
        allowed = self.settings.mcp_elicitation_approves
        if allowed and self.answerer is None and not self._closed:
            self._elicitor = Approver("elicitation", self.agent.connection_id, self.sender)
            self.host.approvals.add(self._elicitor)

    def add_approver(self, request: ApproverRequest) -> None:
        """Make the client the connection's approver, which asks the user questions. Idempotent.

        `request` has the kind of client, the command with which the client started the agent, and
        the profile that the user has chosen, if any.
        """
        if self._approver is None and not self._closed:
            self.programs = program_names(request.agent)
            self.chosen_profile = request.profile
            # An earlier request may have selected a profile.
            self._profile = None
            self._add_approver(request.kind)
            self.mark_changed()

    def _add_approver(self, kind: ApproverKind) -> None:
        self._approver_kind = kind
        self._approver = Approver(kind, self.agent.connection_id, self.sender)
        self.host.approvals.add(self._approver)

    def restore_rights(self, record: ConnectionRecord | RightsRecord) -> None:
        """Restore the values of `record` that decide which commands the agent may run.

        These are: the names of the agent's own program and the directory that the agent works in,
        by which a profile is selected; the profile that the user has chosen; the profiles that the
        client has requested; and, if the client is an approver, the kind of client.
        """
        if record.directory is not None:
            self.directory = unpack_text(record.directory)
        self.programs = record.programs
        self.chosen_profile = record.profile
        self.requested_profiles.extend(record.requested_profiles)
        if record.approver is not None:
            self._add_approver(record.approver)

    def rights(self, session: Session) -> RightsRecord:
        """Return a record of the agent's rights in `session`.

        The rights decide which commands the agent may run. The record is stored with each terminal
        that is created in the session.
        """
        workspace = session.workspace
        return RightsRecord(
            programs=self.programs,
            directory=pack_text(self.directory),
            approver=self._approver_kind,
            profile=self.chosen_profile,
            requested_profiles=list(self.requested_profiles),
            workspace=None if workspace is None else pack_text(workspace),
        )

    def flush_state(self) -> None:
        """Write all changed records to the keeper's store. Called before a response is sent."""
        self.host.state_writer.flush()

    def find_session(self, params: TerminalParams) -> Session:
        """Return the session that a request about a terminal names in its `params`.

        Raises `RpcError` (-32002, no such terminal) if the connection has no such session.
        """
        try:
            return self.sessions[params.session_id]
        except KeyError:
            raise no_such_terminal(params.session_id, params.terminal_id) from None

    def readable(self, params: TerminalParams) -> TerminalEntry:
        """Return the terminal that a request names in its `params`, to read its output.

        The terminal is in the session that the request names, or it was created by the user and the
        settings allow agents to read it. Raises `RpcError` (-32002) if there is no such terminal.
        """
        session = self.sessions.get(params.session_id)
        if session is None or session.find(params.terminal_id) is None:
            users = {entry.id: entry for entry in self.users_terminals()}
            found = users.get(params.terminal_id) or named(users.values(), params.terminal_id)
            if found is not None:
                return found
        return self.find_session(params).readable(params.terminal_id)

    def users_terminals(self) -> list[TerminalEntry]:
        """Return the terminals that the user created, if the settings let agents read them.

        Otherwise return an empty list. Released terminals are left out.
        """
        if not self.settings.agents_read_user_terminals:
            return []
        return [
            entry
            for entry in self.host.registry
            if entry.is_created_by_user and entry.released_at is None
        ]

    def session(self, identifier: str) -> Session:
        """Return the session with this id; create the session if there is none.

        A connection has at most `SESSIONS_MAX` sessions: one more replaces the oldest session that
        has no terminal. Raises `RpcError`: -32602 for an id that is too long, -32603 if all
        sessions have terminals.
        """
        if (session := self.sessions.get(identifier)) is not None:
            return session
        if len(identifier) > _SESSION_ID_MAX:
            raise RpcError(
                INVALID_PARAMS,
                f"sessionId {quote(identifier)} has {len(identifier)} characters: it may have "
                f"{_SESSION_ID_MAX} at most",
            )
        if len(self.sessions) >= SESSIONS_MAX:
            for other in self.sessions.values():
                if not other.has_terminals:
                    break
            else:
                raise RpcError(
                    INTERNAL_ERROR,
                    f"{SESSIONS_MAX} sessions of this connection have terminals: "
                    "release some of them",
                )
            self._drop(other)
        # `initialize` also stores the connection, but an agent need not send `initialize`.
        self.mark_changed()
        session = self.sessions[identifier] = self._new_session(identifier, next(self._numbers))
        session.store()
        self.count_memory(session)
        return session

    def _new_session(self, identifier: str, number: int) -> Session:
        records = SessionRecords(self.host.state_writer, self.agent.connection_id, number)
        return Session(identifier, self.agent, records, self.creates)

    def add_relayed_agent(self) -> None:
        """If the process that connected is only a relay, add the agent's process to `holders`.

        `holders` then has the relay and the agent (see `relay_parent`).
        """
        relay = processes.identity(self.holders[0][0]) if self.holders else None
        if relay is None or relay.started != self.holders[0][1]:
            return
        if agent := agent_behind(relay):
            self.holders = [self.holders[0], (agent.pid, agent.started)]

    def mark_changed(self) -> None:
        """Schedule the connection's record to be stored before the next response is sent."""
        self.host.state_writer.changed(self._key, self._record)

    def _record(self) -> bytes:
        return ConnectionRecord(
            secret=self.secret,
            agent=self.agent.name,
            context=ContextRecord.from_context(self.context),
            holders=self.holders,
            programs=self.programs,
            directory=pack_text(self.directory),
            starts=self.starts,
            approver=self._approver_kind,
            profile=self.chosen_profile,
            requested_profiles=list(self.requested_profiles),
        ).encode()

    def restore_session(
        self, number: int, record: SessionRecord, calls: Iterable[tuple[int, ToolCallRecord]]
    ) -> None:
        """Restore a session from the previous worker's `record`.

        `number` is the number of the session in its connection. `calls` are the session's tool
        calls, each with its number.
        """
        session = self.sessions[record.id] = self._new_session(record.id, number)
        session.restore(record, calls)
        self.count_memory(session)
        self._numbers = itertools.count(max(number + 1, next(self._numbers)))

    def restore_terminal(self, session: Session, entry: TerminalEntry) -> None:
        """Add a terminal of the previous worker to `session`, so that the agent can use its id."""
        session.add(entry)
        self.creates.add(entry)

    def count_memory(self, session: Session) -> None:
        """Count the memory of a session that was just used.

        If a limit of `host.memory` is exceeded, other sessions lose their tool calls, or are
        dropped if they have no terminals.
        """
        if not self._closed and self.sessions.get(session.id) is session:
            self._memory.count(session)

    def _shrink(self, session: Session) -> None:
        if session.has_terminals:
            session.forget_updates()
            self._memory.recount(session)
        else:
            self._drop(session)

    def session_key(self, session: Session) -> str:
        """Return a text that identifies a session among the sessions of all connections."""
        return f"{self.id} {session.id}"

    def _drop(self, session: Session) -> None:
        self.host.policy.end_session(self.session_key(session))
        session.closed.set()
        del self.sessions[session.id]
        session.remove_records()
        self._memory.remove(session)

    def add(
        self, session: Session, terminal: Terminal, request: LaunchRequest, record: TerminalRecord
    ) -> TerminalEntry:
        """Add a terminal that was just created, and return its entry.

        `request` is the launch request that started `terminal`, and `record` the terminal's record.
        If the connection was closed meanwhile, the terminal is released at once.
        """
        entry = TerminalEntry(terminal, record, self.host.state_writer, session)
        session.add(entry)
        self.creates.add(entry)
        self.host.add(entry, request.env)
        if self._closed:
            self.release(session, terminal.id, EndedBy.DISCONNECT)
        return entry

    def release(
        self, session: Session, identifier: str, by: EndedBy, *, leaves_background: bool = False
    ) -> TerminalEntry | None:
        """Make a terminal's id invalid, and begin to end its processes; return the terminal.

        `identifier` is the terminal's id or name. `by` is recorded as the cause of the end. With
        `leaves_background`, what an exited program has left running continues. If the user owns the
        terminal, only make the id invalid, and return None. If the id was released before, do
        nothing, and return None. Raises `RpcError` (-32002) if the id is unknown.
        """
        entry = session.release(identifier)
        if entry is not None and not entry.is_users and leaves_background:
            leaves_background = self.host.registry.leave(entry)
        # Store the released id before the keeper forgets the terminal: if the worker dies in
        # between, the client repeats the request, and the next worker has to know the id.
        self.flush_state()
        self.count_memory(session)
        if entry is None or entry.is_users:
            return None
        if not leaves_background:
            self.host.registry.release(entry, by)
        return entry

    def close(self) -> None:
        """Release all terminals that the user does not own, and forget all sessions. Idempotent."""
        if self._closed:
            return
        self._closed = True
        identifier = self.agent.connection_id
        self.host.approvals.withdraw(identifier, reason="the agent has disconnected")
        self.host.approval_records.forget_connection(identifier)
        for answerer in (self._approver, self._elicitor):
            if answerer is not None:
                self.host.approvals.remove(answerer)
        self._memory.close()
        for session in self.sessions.values():
            for entry in list(session.entries.values()):
                session.release(entry.id)
                if not entry.is_users:
                    self.host.registry.release(entry, EndedBy.DISCONNECT)
            self.host.policy.end_session(self.session_key(session))
            session.closed.set()
            session.remove_records()
        for entry in self.host.registry.left_by(self.id):
            self.host.registry.release(entry, EndedBy.DISCONNECT)
        self.host.state_writer.removed(self._key)
