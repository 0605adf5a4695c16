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
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.methods import AGENT_METHODS
from acpterm.host.agent.resumption import Resumption
from acpterm.host.host_state import HostState
from acpterm.host.server.connection import Connection
from acpterm.host.server.dispatch import MethodTable
from acpterm.host.server.peer import PeerProcess
from acpterm.host.sessions.session import Session
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
        self, state: HostState, context: ExecContext, trees: Trees, resumption: Resumption
    ) -> None:
        self.settings: Final = state.settings
        self.pool: Final = state.pool
        self.state: Final = state
        self.context = context
        self._trees: Final = trees
        self._connections: set[Connection] = set()
        self._resumption: Final = resumption
        self._admission: Final = Admission(
            trees,
            state.registry.get,
            state.pool.wait_created,
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
        name = self.state.new_connection_name()
        # A connection is stored with its first request: a peer that sends nothing may be no agent.
        agent = AgentConnection(context, self.state, name, self._resumption, holders=holders)
        if approver is not None:
            agent.add_approver(approver)
        connection = Connection(stream, agent, AGENT_METHODS, name, store=self.state.keeper)
        self._resumption.connected(agent, connection)
        self.state.agents += 1
        try:
            await self._serve(connection)
        finally:
            self.state.agents -= 1
            self._resumption.disconnected(connection)

    async def serve_user(
        self,
        stream: trio.abc.Stream,
        context: ExecContext,
        methods: MethodTable = USER_METHODS,
        terminals: Collection[str] = (),
        *,
        process: tuple[int, float] | None = None,
        answers_as: AnsweredBy = "approvals",
    ) -> None:
        """Serve one client of the user until it disconnects or the host is closed."""
        name = f"p{next(self._user_names)}"
        self.state.users += 1
        try:
            await self._serve(
                Connection(
                    stream,
                    UserConnection(
                        context,
                        self.state,
                        self._sessions,
                        terminals,
                        process=process,
                        answers_as=answers_as,
                    ),
                    methods,
                    name,
                    high=HIGH_WATER_BYTES,
                    store=self.state.keeper,
                )
            )
        finally:
            self.state.users -= 1

    @contextmanager
    def local_user(self) -> Iterator[UserConnection]:
        """Yield the state of a user's client without a connection, for the HTTP server."""
        user = UserConnection(self.context, self.state, self._sessions)
        self.state.users += 1
        self.state.changed.unpark_all()
        try:
            yield user
        finally:
            user.close()
            self.state.users -= 1
            self.state.changed.unpark_all()

    async def _serve(self, connection: Connection) -> None:
        self._connections.add(connection)
        self.state.changed.unpark_all()
        if self._ending:
            connection.close()
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            self.state.changed.unpark_all()
            if connection.received > _LARGE_BYTES:
                release_memory()

    def is_needed(self) -> bool:
        """Return whether there is a connection, open or unresumed, or a terminal."""
        is_connected = self._connections or self.state.users or self._resumption.unresumed
        return bool(is_connected) or self.state.registry.is_busy

    async def wait_changed(self) -> None:
        await self.state.changed.park()

    def _sessions(self) -> Iterator[Session]:
        for agent in self._resumption.connections:
            yield from list(agent.sessions.values())

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
            self.state.close_by(trio.current_time() + _END_TIMEOUT_S)
            self.state.policy.end_all()
        self._resumption.expire()
        for connection in list(self._connections):
            connection.close()
        while self._connections:
            await self.wait_changed()

    async def expire_unresumed(self) -> None:
        """Wait `resume_timeout`, then clean up after clients and windows that are gone."""
        await trio.sleep(self.settings.resume_timeout)
        self._resumption.expire()
        self.state.windows.settle()
        self.state.changed.unpark_all()

    async def run_keeper(self, on_terminate: Callable[[], None]) -> None:
        """Receive the keeper's reports; call `on_terminate` when the keeper requests a shutdown."""
        try:
            await self.state.keeper.run(on_terminate=on_terminate)
        except KeeperLostError as error:
            if self.state.keeper.stored:
                self._trees.release_controllers()
                _log.error("the keeper is lost: programs run on until the service is started again")
                raise
            self.lost_keeper = error
            await self.end_terminals()
            on_terminate()

    async def end_terminals(self) -> None:
        _log.error("the keeper is lost: all terminals are ended")
        self.pool.lose_keeper()
        with trio.move_on_after(_END_TIMEOUT_S):
            for entry in self.state.registry:
                await entry.terminal.wait_exited()


def release_memory() -> None:
    """Return free memory to the system: 1 ms, and 1 ms per thousand terminals."""
    gc.collect()
    linux.trim_memory()
