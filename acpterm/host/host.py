"""Serves the connections of agents and of the user's clients, until the host is closed."""

import gc
import itertools
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog
import trio

from acpterm.acp.approvals import ApproverRequest
from acpterm.host.agent.methods import AGENT_METHODS
from acpterm.host.agent.resumption import Resumption
from acpterm.host.daemon_state import DaemonState
from acpterm.host.guard import Guard
from acpterm.host.server.connection import Connection
from acpterm.host.server.dispatch import MethodTable
from acpterm.host.server.peer import PeerProcess
from acpterm.host.terminals import Terminals
from acpterm.host.user.admission import Admission
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.methods import USER_METHODS, refusing
from acpterm.keeper.reports import KeeperLostError
from acpterm.policy.questions import AnsweredBy
from acpterm.pty import linux
from acpterm.pty.tracking.trees import Trees
from acpterm.runtime.exec_context import ExecContext, of_process
from acpterm.runtime.unix_socket import peer_of

# How long closing a host may take, before the last clean-ups of the providers.
_END_TIMEOUT_S: Final = 4.6
HIGH_WATER_BYTES: Final = 64 * 1024
"""Low, so that a slow client of the user does not show an old screen."""
# When a connection closes that has received more bytes, unused memory is returned to the system.
_LARGE_BYTES: Final = 4 * 1024 * 1024

_log = structlog.get_logger("acpterm.host")


class Host:
    """Serves connections until it is closed. `open_host` creates it."""

    def __init__(
        self,
        *,
        terminals: Terminals,
        guard: Guard,
        daemon: DaemonState,
        resumption: Resumption,
        trees: Trees,
        context: ExecContext,
    ) -> None:
        self.settings: Final = terminals.settings
        self.terminals: Final = terminals
        self.guard: Final = guard
        self.daemon: Final = daemon
        self.keeper: Final = daemon.keeper
        self.context = context
        self._trees: Final = trees
        self._connections: set[Connection] = set()
        self.resumption: Final = resumption
        self._admission: Final = Admission(
            trees,
            terminals.registry.get,
            terminals.pool.wait_created,
            resumption.holders,
            resumption.approvers,
        )
        self._user_names: Final = itertools.count(1)
        self._ending = False
        self.lost_keeper: KeeperLostError | None = None
        """The error that says how the keeper was lost; None while there is a keeper."""

    async def serve(
        self,
        stream: trio.abc.Stream,
        context: ExecContext,
        holders: Iterable[tuple[int, float]] = (),
        *,
        approver: ApproverRequest | None = None,
    ) -> None:
        """Serve one agent until it disconnects or the host is closed."""
        name = self.resumption.new_name()
        # A connection is stored with its first request: a peer that sends nothing may be no agent.
        agent = self.resumption.new_connection(context, name, holders=holders)
        if approver is not None:
            agent.add_approver(approver)
        connection = Connection(stream, agent, AGENT_METHODS, name, store=self.keeper)
        self.resumption.connected(agent, connection)
        self.daemon.agents += 1
        try:
            await self._serve(connection)
        finally:
            self.daemon.agents -= 1
            self.resumption.disconnected(connection)

    async def serve_user(
        self,
        stream: trio.abc.Stream,
        context: ExecContext,
        methods: MethodTable = USER_METHODS,
        inside: Collection[str] = (),
        *,
        process: tuple[int, float] | None = None,
        answers_as: AnsweredBy = "approvals",
    ) -> None:
        """Serve one client of the user until it disconnects or the host is closed."""
        name = f"p{next(self._user_names)}"
        self.daemon.users += 1
        try:
            await self._serve(
                Connection(
                    stream,
                    self.new_user(context, inside, process=process, answers_as=answers_as),
                    methods,
                    name,
                    high=HIGH_WATER_BYTES,
                    store=self.keeper,
                )
            )
        finally:
            self.daemon.users -= 1

    @contextmanager
    def local_user(self) -> Iterator[UserConnection]:
        """Yield the state of a user's client without a connection, for the HTTP server."""
        user = self.new_user(self.context)
        self.daemon.users += 1
        self.daemon.changed.unpark_all()
        try:
            yield user
        finally:
            user.close()
            self.daemon.users -= 1
            self.daemon.changed.unpark_all()

    def new_user(
        self,
        context: ExecContext,
        inside: Collection[str] = (),
        *,
        process: tuple[int, float] | None = None,
        answers_as: AnsweredBy = "approvals",
    ) -> UserConnection:
        return UserConnection(
            context,
            terminals=self.terminals,
            guard=self.guard,
            daemon=self.daemon,
            sessions=self.resumption.sessions,
            inside=inside,
            process=process,
            answers_as=answers_as,
        )

    async def _serve(self, connection: Connection) -> None:
        self._connections.add(connection)
        self.daemon.changed.unpark_all()
        if self._ending:
            connection.close()
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            self.daemon.changed.unpark_all()
            if connection.received > _LARGE_BYTES:
                release_memory()

    def is_needed(self) -> bool:
        """Return whether there is a connection, open or unresumed, or a terminal."""
        is_connected = self._connections or self.daemon.users or self.resumption.unresumed
        return bool(is_connected) or self.terminals.registry.is_busy

    async def wait_changed(self) -> None:
        await self.daemon.changed.park()

    async def serve_agent_socket(self, stream: trio.SocketStream) -> None:

        async def serve(stream: trio.SocketStream, context: ExecContext) -> None:
            with PeerProcess(stream) as peer:
                found = peer.identity
            holders = [] if found is None else [(found.pid, found.started)]
            await self.serve(stream, context, holders)

        await self._serve_socket(stream, serve)

    async def serve_user_socket(self, stream: trio.SocketStream) -> None:
        """Serve a connection to the user's socket; refuse each request of an agent."""

        async def serve(stream: trio.SocketStream, context: ExecContext) -> None:
            verdict = await self._admission.judge(stream)
            methods = USER_METHODS
            if verdict.refusal is not None:
                methods = refusing(verdict.refusal)
                _log.warning(
                    "connection refused",
                    pid=verdict.pid,
                    terminals=sorted(verdict.terminals),
                    reason=verdict.refusal,
                )
            await self.serve_user(
                stream, context, methods, verdict.terminals, process=verdict.process
            )

        await self._serve_socket(stream, serve)

    async def _serve_socket(
        self,
        stream: trio.SocketStream,
        serve: Callable[[trio.SocketStream, ExecContext], Awaitable[None]],
    ) -> None:
        try:
            peer = peer_of(stream.socket)
            if peer.uid != os.geteuid():
                _log.warning("connection refused: it is another user's", uid=peer.uid)
                await stream.aclose()
                return
            context = self.context
            if peer.pid:
                # This makes some twenty fast system calls. A thread would take longer, and could
                # not be started if the process limit is reached.
                context = of_process(peer.pid, context)
            await serve(stream, context)
        except Exception as error:  # noqa: BLE001  a bug in one connection must not end the others
            _log.error("a connection failed", exc_info=error)

    async def close(self) -> None:
        if not self._ending:
            self._ending = True
            self.terminals.close_by(trio.current_time() + _END_TIMEOUT_S)
            self.guard.policy.end_all()
        self.resumption.expire()
        for connection in list(self._connections):
            connection.close()
        while self._connections:
            await self.wait_changed()

    async def expire_unresumed(self) -> None:
        """Wait `resume_timeout`, then clean up after clients and windows that are gone."""
        await trio.sleep(self.settings.resume_timeout)
        self.resumption.expire()
        self.terminals.windows.settle()
        self.daemon.changed.unpark_all()

    async def run_keeper(self, on_terminate: Callable[[], None]) -> None:
        """Receive the keeper's reports; call `on_terminate` when the keeper requests a shutdown."""
        try:
            await self.keeper.run(on_terminate=on_terminate)
        except KeeperLostError as error:
            if self.keeper.stored:
                self._trees.release_controllers()
                _log.error("the keeper is lost: programs run on until the service is started again")
                raise
            self.lost_keeper = error
            await self.end_terminals()
            on_terminate()

    async def end_terminals(self) -> None:
        _log.error("the keeper is lost: all terminals are ended")
        self.terminals.pool.lose_keeper()
        with trio.move_on_after(_END_TIMEOUT_S):
            for entry in self.terminals.registry:
                await entry.terminal.wait_exited()


def release_memory() -> None:
    """Return free memory to the system: 1 ms, and 1 ms per thousand terminals."""
    gc.collect()
    linux.trim_memory()
