"""The state of one agent's connection: sessions with their terminals, rights, execution context.

(`server.connection` serves the connection's stream, which may be replaced: see `resumption`.)

An agent can use only its own terminals, and each terminal only in the session that created it:
terminal ids are looked up in the session that a request names, so any other id does not exist. With
the setting `agents_read_user_terminals`, it can also read terminals that the user created.

States: *open*, then *closed* by `close`, which releases all terminals that the user does not own.
If a terminal is being created when `close` is called, it is released as soon as it exists.

An object for the rights (profiles and approvers) would have to refer back to the connection. Such a
cycle would keep a closed connection in memory until the next garbage collection.

The agent behind `acpterm stdio` is that process's parent, with two exceptions. A wrapper that only
starts the relay, such as `npx`, is skipped: the agent is then the nearest ancestor that is not a
wrapper. A process that starts programs for the user, such as an interactive shell, is not an agent,
because everything that the user runs descends from it. Wrappers and shells are recognised by their
names, which any program can choose: see docs/security.md.
"""

import itertools
import os
import re
import secrets
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from acpterm.acp.approvals import ApproverKind, ApproverRequest
from acpterm.acp.terminal import TerminalRequest
from acpterm.acp.user_api import TerminalInfo
from acpterm.config.profiles import Profile
from acpterm.host.access import Access, Need
from acpterm.host.agent.creates import Creates
from acpterm.host.approvals import Approver
from acpterm.host.entry import AgentInfo, TerminalEntry
from acpterm.host.guard import Guard
from acpterm.host.launch.launch import Launch
from acpterm.host.memory import ConnectionMemory
from acpterm.host.names import named
from acpterm.host.profiles import program_names, programs_of
from acpterm.host.sessions.session import Session, no_such_terminal
from acpterm.host.state.records import (
    AgentSessionRecord,
    ConnectionRecord,
    ContextRecord,
    RightsRecord,
    TerminalRecord,
    ToolCallRecord,
    pack_text,
    unpack_text,
)
from acpterm.host.state.store import connection_key
from acpterm.host.terminal_info import for_agent, gives_signal_code
from acpterm.host.terminals import Terminals
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError, quote
from acpterm.pty import linux, processes
from acpterm.pty.linux import ProcStat
from acpterm.runtime.exec_context import ExecContext
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal

if TYPE_CHECKING:
    from acpterm.host.agent.resumption import Resumption

SESSIONS_MAX: Final = 10_000
_SECRET_BYTES: Final = 32
# The maximum length of a session's id, in characters.
_SESSION_ID_MAX: Final = 4096

_SERVERS: Final = (
    b"systemd",
    b"init",
    b"sshd",
    b"sshd-session",
    b"dropbear",
    b"mosh-server",
    b"tmux: server",
    b"screen",
    b"SCREEN",
    b"cron",
    b"crond",
)
_SHELLS: Final = (b"sh", b"bash", b"dash", b"zsh", b"fish", b"ksh", b"mksh", b"tcsh", b"csh")
_WRAPPERS: Final = (b"uv", b"uvx", b"npm", b"npx", b"pnpm", b"yarn", b"pipx", b"env", b"timeout")
# npm replaces its own command line, and so its name, by a description of what it is doing.
_NPM_TITLE: Final = re.compile(rb"(npm|npx|pnpm|yarn)\b")
_NPM_SCRIPT: Final = re.compile(rb"(npm|npx|pnpm|yarn)(-cli)?(\.c?js)?")
_COMMAND_OPTION: Final = re.compile(rb"-[a-zA-Z]*c[a-zA-Z]*")
_WRAPPERS_MAX: Final = 16


def agent_behind(relay: ProcStat) -> ProcStat | None:
    """Return the agent's process behind a relay; None if there is none to be seen."""
    process = relay
    for _ in range(_WRAPPERS_MAX):
        # A process that opened a terminal for its child serves the user: agents use pipes.
        if process.ppid <= 1 or _leads_terminal(process):
            return None
        parent = processes.identity(process.ppid)
        if parent is None or parent.started > process.started:
            return None
        name = linux.name_of(parent.pid)
        words = linux.arguments_of(parent.pid)
        if name in _SERVERS or _is_interactive_shell(parent, name, words):
            return None
        if not _is_wrapper(name, words):
            return parent
        process = parent
    return None


def _leads_terminal(process: ProcStat) -> bool:
    return process.sid == process.pid and linux.has_terminal(process.pid)


def _is_interactive_shell(process: ProcStat, name: bytes, words: list[bytes]) -> bool:
    if name not in _SHELLS or _has_command(words):
        return False
    # The shell that leads a terminal may have arguments that are files: `--rcfile FILE`.
    return _leads_terminal(process) or (
        linux.has_terminal(process.pid) and all(word.startswith(b"-") for word in words[1:])
    )


def _is_wrapper(name: bytes, words: list[bytes]) -> bool:
    if name in _SHELLS:
        return _has_command(words)
    if name in _WRAPPERS or _NPM_TITLE.match(name):
        return True
    script = os.path.basename(words[1]) if len(words) > 1 else b""
    return name in (b"node", b"MainThread") and _NPM_SCRIPT.fullmatch(script) is not None


def _has_command(words: list[bytes]) -> bool:
    """Return whether a shell was called with `-c COMMAND`; `words` is the shell's argv."""
    for word in words[1:]:
        if not word.startswith(b"-"):
            return False
        if _COMMAND_OPTION.fullmatch(word):
            return True
    return False


class AgentConnection(Access):
    """The state of one agent's connection; a peer that sends its `secret` can resume it."""

    by = EndedBy.AGENT

    def __init__(
        self,
        context: ExecContext,
        terminals: Terminals,
        guard: Guard,
        connection: str,
        *,
        resumption: "Resumption",
        secret: str | None = None,
        holders: Iterable[tuple[int, float]] = (),
    ) -> None:
        super().__init__(terminals, guard, context)
        # With it another connection may resume this one. Never logged.
        self.secret: Final = secret or secrets.token_hex(_SECRET_BYTES)
        self.resumption: Final = resumption
        self.creates: Final = Creates(partial(guard.approval_records.forget, connection))
        self.id: Final = connection
        self.agent: Final = AgentInfo(connection)
        self.holders = list(holders)
        self.sessions: Final[dict[str, Session]] = {}
        self.programs: list[str] = []
        """The names of the agent's program, by which the profile is selected."""
        self.directory = context.cwd
        """Where the process that connected works, as the host has read: selects the profile."""
        self.chosen_profile: str | None = None
        self.requested_profiles: Final[list[str]] = []
        self._profile: Profile | None = None
        self.event_requests: Final[dict[str, trio.CancelScope]] = {}
        """The scope of each pending request for events, by its token."""
        self.starts: Final[list[float]] = []
        """When the agent has started terminals, on the boot clock (`host.guard`)."""
        self.expiry = trio.CancelScope()
        self.approver: Approver | None = None
        """The observer of questions for the client; None if it is no approver."""
        self._approver_kind: ApproverKind | None = None
        self._elicitor: Approver | None = None
        self._memory: Final = ConnectionMemory(resumption.session_memory, self._shrink)
        self._closed = False
        self._key: Final = connection_key(connection)
        self._numbers = itertools.count()

    @property
    def holders(self) -> list[tuple[int, float]]:
        """The processes that use this connection: the opener and, behind a relay, the agent."""
        return self._holders

    @holders.setter
    def holders(self, processes: list[tuple[int, float]]) -> None:
        self._holders = processes
        self.agent.process = processes[-1] if processes else None

    @property
    def signal_code(self) -> bool:
        return gives_signal_code(self.settings, self.agent.name)

    @property
    def profile(self) -> Profile:
        """The agent's profile, selected at the first use. Raises `RpcError` (-32603)."""
        if self._profile is None:
            if not self.programs:
                self.programs = programs_of(pid for pid, _ in reversed(self.holders))
            profiles = self.policy.profiles
            if self.chosen_profile is None:
                self._profile = profiles.select(self.programs, self.directory)
            else:
                self._profile = self._named_profile(self.chosen_profile, "the user has chosen")
            self.mark_changed()
        return self._profile

    @property
    def profiles(self) -> tuple[Profile, ...]:
        selected = self.profile
        requested = [name for name in self.requested_profiles if name != selected.name]
        return selected, *(self._named_profile(one, "was requested") for one in requested)

    def _named_profile(self, name: str, why: str) -> Profile:
        by_name = self.policy.profiles.by_name
        if name not in by_name:
            raise RpcError(
                INTERNAL_ERROR,
                f"no command is run: the profile {quote(name)}, which {why} for this agent, is not "
                f"in the settings any more; there are {', '.join(sorted(by_name))}",
            )
        return by_name[name]

    def request_profile(self, name: str) -> None:
        """Apply a known profile in addition, until `close`. Idempotent."""
        # Any peer may request this: one more profile can only make decisions stricter.
        if name not in self.requested_profiles:
            self.requested_profiles.append(name)
            self.mark_changed()

    def default_directory(self, session: Session) -> str:
        return session.cwd or self.context.cwd

    def workspace(self, session: Session) -> str | None:
        """Return the directory in which a session's sandboxed programs may write."""
        # An agent that names a session which its approver has not opened must not get the
        # approver's directory.
        if session.workspace is None and self.approver is not None:
            return None
        return session.workspace or self.directory

    @property
    def answerer(self) -> Approver | None:
        """The observer of questions for the client; None if it may not answer."""
        return self.approver or self._elicitor

    def add_elicitor(self) -> None:
        """Let a client that is no approver answer, if `mcp_elicitation_approves` is set."""
        # Not stored: the client requests it again when it resumes the connection.
        allowed = self.settings.mcp_elicitation_approves
        if allowed and self.answerer is None and not self._closed:
            self._elicitor = Approver("elicitation", self.id, self.sender)
            self.approvals.add(self._elicitor)

    def add_approver(self, request: ApproverRequest) -> None:
        """Make the client the connection's approver, which asks the user questions. Idempotent."""
        if self.approver is None and not self._closed:
            self.programs = program_names(request.agent)
            self.chosen_profile = request.profile
            # An earlier request may have selected a profile.
            self._profile = None
            self._add_approver(request.kind)
            self.mark_changed()

    def _add_approver(self, kind: ApproverKind) -> None:
        self._approver_kind = kind
        self.approver = Approver(kind, self.id, self.sender)
        self.approvals.add(self.approver)

    def restore_rights(self, record: ConnectionRecord | RightsRecord) -> None:
        if record.directory is not None:
            self.directory = unpack_text(record.directory)
        self.programs = record.programs
        self.chosen_profile = record.profile
        self.requested_profiles.extend(record.requested_profiles)
        if record.approver is not None:
            self._add_approver(record.approver)

    def rights(self, session: Session) -> RightsRecord:
        """Return a record of the agent's rights, stored with each of its terminals."""
        workspace = None if session.workspace is None else pack_text(session.workspace)
        return RightsRecord(**self._rights, workspace=workspace)

    @property
    def _rights(self) -> dict[str, Any]:
        return {
            "programs": self.programs,
            "directory": pack_text(self.directory),
            "approver": self._approver_kind,
            "profile": self.chosen_profile,
            "requested_profiles": list(self.requested_profiles),
        }

    def find_session(self, params: TerminalRequest) -> Session:
        try:
            return self.sessions[params.session_id]
        except KeyError:
            raise no_such_terminal(params.session_id, params.terminal_id) from None

    def resolve(self, params: Any, need: Need, done: str = "") -> TerminalEntry:
        name = params.terminal_id
        if need is Need.READ:
            session = self.sessions.get(params.session_id)
            if session is None or session.find(name) is None:
                users = {entry.id: entry for entry in self.users_terminals()}
                if found := users.get(name) or named(users.values(), name):
                    return found
        session = self.find_session(params)
        if need in (Need.CONTROL, Need.TYPE):
            return session.owned(name, done)
        return session.readable(name)

    def release_terminal(self, params: Any) -> TerminalEntry | None:
        """Make the id invalid, and end the program unless the user owns it. Idempotent."""
        session = self.find_session(params)
        return self.release(session, params.terminal_id, EndedBy.AGENT, leaves_background=True)

    def info(self, entry: TerminalEntry) -> TerminalInfo:
        return for_agent(super().info(entry))

    def users_terminals(self) -> list[TerminalEntry]:
        """Return the user's unreleased terminals, if the settings let agents read them."""
        if not self.settings.agents_read_user_terminals:
            return []
        return [
            entry
            for entry in self.registry
            if entry.is_created_by_user and entry.released_at is None
        ]

    def session(self, identifier: str) -> Session:
        # One above `SESSIONS_MAX` replaces the oldest session that has no terminal.
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
        return Session(identifier, self.agent, number, self.writer, self.creates.confirm)

    def add_relayed_agent(self) -> None:
        """If the process that connected is only a relay, add the agent's process to `holders`."""
        relay = processes.identity(self.holders[0][0]) if self.holders else None
        if relay is None or relay.started != self.holders[0][1]:
            return
        if agent := agent_behind(relay):
            self.holders = [self.holders[0], (agent.pid, agent.started)]

    def mark_changed(self) -> None:
        self.writer.changed(self._key, self._record)

    def _record(self) -> bytes:
        return ConnectionRecord(
            secret=self.secret,
            agent=self.agent.name,
            context=ContextRecord.from_context(self.context),
            holders=self.holders,
            starts=self.starts,
            **self._rights,
        ).encode()

    def restore_session(
        self, number: int, record: AgentSessionRecord, calls: Iterable[tuple[int, ToolCallRecord]]
    ) -> None:
        session = self.sessions[record.id] = self._new_session(record.id, number)
        session.restore(record, calls)
        self.count_memory(session)
        self._numbers = itertools.count(max(number + 1, next(self._numbers)))

    def restore_terminal(self, session: Session, entry: TerminalEntry) -> None:
        session.add(entry)
        self.creates.add(entry)

    def count_memory(self, session: Session) -> None:
        """Count the memory of a session just used; others may be shrunk (`host.memory`)."""
        if not self._closed and self.sessions.get(session.id) is session:
            self._memory.count(session)

    def _shrink(self, session: Session) -> None:
        if session.has_terminals:
            session.forget_updates()
            self._memory.recount(session)
        else:
            self._drop(session)

    def session_key(self, session: Session) -> str:
        return f"{self.id} {session.id}"

    def _drop(self, session: Session) -> None:
        self.policy.end_session(self.session_key(session))
        session.closed.set()
        del self.sessions[session.id]
        session.remove_records()
        self._memory.remove(session)

    def add(
        self, session: Session, terminal: Terminal, launch: Launch, record: TerminalRecord
    ) -> TerminalEntry:
        """Add a terminal that was just created; release it at once if the connection was closed."""
        entry = TerminalEntry(terminal, record, self.writer, session)
        session.add(entry)
        self.creates.add(entry)
        self.terminals.add(entry, launch.program_env)
        if record.is_kept:
            self.guard.snapshots.note(entry.id, record.created_time, entry.cwd)
        if self._closed:
            self.release(session, terminal.id, EndedBy.DISCONNECT)
        return entry

    def release(
        self, session: Session, identifier: str, by: EndedBy, *, leaves_background: bool = False
    ) -> TerminalEntry | None:
        """Make a terminal's id invalid, and begin to end its processes unless the user owns it."""
        # Returns None if nothing ends now. With `leaves_background`, what an exited program left
        # runs on.
        entry = session.release(identifier)
        if entry is not None and not entry.is_users and leaves_background:
            leaves_background = self.registry.leave(entry)
        # Store the released id before the keeper forgets the terminal: if the worker dies in
        # between, the client repeats the request, and the next worker has to know the id.
        self.flush_state()
        self.count_memory(session)
        if entry is None or entry.is_users:
            return None
        if not leaves_background:
            self.registry.release(entry, by)
        return entry

    def close(self) -> None:
        """Release all terminals that the user does not own, and forget all sessions. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.approvals.withdraw(self.id, reason="the agent has disconnected")
        self.guard.approval_records.forget_connection(self.id)
        for answerer in (self.approver, self._elicitor):
            if answerer is not None:
                self.approvals.remove(answerer)
        self._memory.close()
        for session in self.sessions.values():
            for entry in list(session.entries.values()):
                session.release(entry.id)
                if not entry.is_users:
                    self.registry.release(entry, EndedBy.DISCONNECT)
            self.policy.end_session(self.session_key(session))
            session.closed.set()
            session.remove_records()
        for entry in self.registry.left_by(self.id):
            self.registry.release(entry, EndedBy.DISCONNECT)
        self.writer.removed(self._key)
