"""Restore the connections, sessions and terminals of the previous worker from its records.

First the agents' connections are restored, with their sessions and their questions to the user. A
restored connection has no transport until its client resumes it (`agent.resumption`). Then each
terminal that the keeper holds is restored with its record. If a terminal's record cannot be read,
the terminal's owner is unknown, so its processes are ended.
"""

import math
from collections.abc import Iterable
from typing import Final

import structlog

from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.resumption import Resumption
from acpterm.host.agent.session_methods import release_later
from acpterm.host.approvals import restored
from acpterm.host.entry import AgentInfo, SessionOrigin, TerminalEntry
from acpterm.host.guard import Guard
from acpterm.host.state.records import LaunchRecord, TerminalRecord, unpack_text
from acpterm.host.state.snapshot import Snapshot
from acpterm.host.state.store import approval_key, launch_key, terminal_key
from acpterm.host.terminals import Terminals
from acpterm.keeper.reports import ExitReport, Found
from acpterm.pty.limits import NO_LIMITS
from acpterm.pty.master import window_size
from acpterm.pty.processes import now as boot_time
from acpterm.pty.tracking.trees import Trees
from acpterm.runtime.exec_context import ExecContext
from acpterm.terminal.spec import TerminalSpec
from acpterm.terminal.status import EndedBy

_log = structlog.get_logger("acpterm.restore")


class Restorer:
    def __init__(
        self,
        terminals: Terminals,
        guard: Guard,
        resumption: Resumption,
        trees: Trees,
        context: ExecContext,
    ) -> None:
        self._terminals: Final = terminals
        self._guard: Final = guard
        self._writer: Final = terminals.writer
        self._resumption: Final = resumption
        self._trees: Final = trees
        self._context: Final = context
        self._connections: Final[dict[str, AgentConnection]] = {}

    def restore(self, snapshot: Snapshot, found: Iterable[Found]) -> None:
        """Restore the records, and the terminals `found` that the keeper holds."""
        for key in snapshot.unusable:
            self._writer.removed(key)
        for name in {record.connection for record in snapshot.terminals.values()}:
            self._resumption.reserve_name(name or "")
        self._restore_connections(snapshot)
        self._restore_approvals(snapshot)
        known = set()
        for terminal in found:
            known.add(terminal.name)
            try:
                self._restore_terminal(
                    terminal,
                    snapshot.terminals.get(terminal.name),
                    snapshot.launches.get(terminal.name),
                )
            except Exception as error:  # noqa: BLE001  the other terminals must still be restored
                _log.error("terminal not restored", terminal=terminal.name, exc_info=error)
                if adopted := self._terminals.pool.terminals.get(terminal.name):
                    self._terminals.pool.release(adopted, EndedBy.DISCONNECT)
        tokens = (entry.record.clean_up_token for entry in self._terminals.registry)
        held = [token for token in tokens if token is not None]
        self._terminals.start_task(self._guard.policy.remove_leftovers, held)
        for name in snapshot.terminals.keys() - known:
            self._writer.removed(terminal_key(name))
        for name in snapshot.launches.keys() - known:
            self._writer.removed(launch_key(name))

    def _restore_connections(self, snapshot: Snapshot) -> None:
        for name, stored in snapshot.connections.items():
            record = stored.record
            context = record.context.to_context() if record.context else self._context
            connection = self._resumption.new_connection(
                context, name, record.secret, record.holders
            )
            connection.agent.name = record.agent
            connection.restore_rights(record)
            connection.starts.extend(record.starts)
            for number, (session, calls) in stored.sessions.items():
                connection.restore_session(number, session, calls.items())
            self._connections[name] = connection
            self._resumption.restored(connection)

    def _restore_approvals(self, snapshot: Snapshot) -> None:
        for identifier, record in snapshot.approvals.items():
            if record.connection in self._connections:
                question, answer = restored(identifier, record)
                self._guard.approval_records.restored(question)
                grace = self._terminals.settings.resume_timeout
                self._guard.approvals.restore(question, answer, grace=grace)
            else:
                self._writer.removed(approval_key(identifier))

    def _restore_terminal(
        self, found: Found, record: TerminalRecord | None, launch: LaunchRecord | None
    ) -> None:
        terminals, pool = self._terminals, self._terminals.pool
        reaped_at = found.exit.reaped_at if found.exit else None
        tree = self._trees.adopt(
            found.name, found.pid, found.started, reaped_at=reaped_at, session=found.session
        )
        if record is None:
            _log.error("terminal ended: it has no record that can be read", terminal=found.name)
            terminal = pool.adopt(found, tree, TerminalSpec())
            pool.release(terminal, EndedBy.DISCONNECT)
            return
        own = record.cols, record.rows
        size = own if found.master is None else window_size(found.master) or own
        lifetime = math.inf
        if record.lifetime_end is not None and found.exit is None:
            lifetime = max(0.0, record.lifetime_end - boot_time())
        ended_by = _ended_by(record, found.exit)
        terminal = pool.adopt(
            found,
            tree,
            record.spec(self._guard.policy.remote(record.provider, record.clean_up_token))._replace(
                size=size,
                lifetime=lifetime,
                created_time=record.created_time,
                started_at=record.started_at,
                ended_by=ended_by,
                cause=record.cause_of(ended_by),
            ),
            NO_LIMITS if record.limits is None else record.limits.resources,
        )
        connection = self._connection_of(record)
        entry = TerminalEntry(
            terminal, record, self._writer, self._session(connection, record), launch
        )
        if record.released_time is not None:
            by = record.released_by or EndedBy.DISCONNECT
            terminal.retained = bool(record.tool_calls)
            if terminal.retained:
                terminals.restore(entry)
            else:
                terminals.clean_up_later(entry)
            pool.release(terminal, by)
            return
        terminals.restore(entry)
        terminals.windows.restore(entry, own)
        if record.killed_by is not None:
            terminal.kill(record.killed_by, record.cause_of(record.killed_by))
        if connection is not None and record.session is not None and record.is_held:
            session = connection.session(record.session)
            connection.restore_terminal(session, entry)
            if record.release_at is not None:
                delay = max(0.0, record.release_at - boot_time())
                terminals.start_task(release_later, connection, session, [entry], delay)
        elif not record.is_users and not (record.is_left and connection is not None):
            # The agent's connection has ended, but the previous worker died before it stored the
            # release of the terminal.
            terminals.registry.release(entry, EndedBy.DISCONNECT)

    def _connection_of(self, record: TerminalRecord) -> AgentConnection | None:
        """Return the agent's connection that created a terminal; None if it has ended."""
        # If the keeper has died too, connections have no records: make one with the rights in the
        # terminal's record.
        name = record.connection
        if name is None:
            return None
        is_over = record.released_time is not None or not (record.is_held or record.is_left)
        if name not in self._connections and record.secret is not None and not is_over:
            connection = self._resumption.new_connection(self._context, name, record.secret)
            connection.agent.name = record.agent
            if record.rights is not None:
                connection.restore_rights(record.rights)
            connection.mark_changed()
            self._connections[name] = connection
            self._resumption.restored(connection)
        return self._connections.get(name)

    def _session(
        self, connection: AgentConnection | None, record: TerminalRecord
    ) -> SessionOrigin | None:
        if record.session is None:
            return None
        if connection and (
            record.is_held or record.is_left or record.session in connection.sessions
        ):
            session = connection.session(record.session)
            if session.workspace is None and record.rights and record.rights.workspace:
                session.workspace = unpack_text(record.rights.workspace)
                session.changed()
            return session
        agent = AgentInfo(record.connection or "")
        agent.name = record.agent
        return SessionOrigin(record.session, agent)


def _ended_by(record: TerminalRecord, report: ExitReport | None) -> EndedBy | None:
    """Return what has killed, or is killing, the program."""
    ended = math.inf if report is None else report.reaped_at
    if record.killed_by is not None and (record.killed_at or 0.0) <= ended:
        return record.killed_by
    if record.lifetime_end is not None and report is not None and record.lifetime_end <= ended:
        return EndedBy.TIMEOUT
    return None
