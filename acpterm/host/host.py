"""The host as a whole: one nursery that supervises the pool, and each connection.

The end, in order, within five seconds: each connection closes, which releases its terminals and
answers what is pending; the pool waits until its terminals are gone. It begins when the block that
`open_host` is used in is left, or by `Host.close`.
"""

import gc
import itertools
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final

import structlog
import trio

from acpterm.config import Settings
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.methods import AGENT_METHODS
from acpterm.host.agent.resumption import Resumption
from acpterm.host.agent.session import Session
from acpterm.host.host_state import HostState
from acpterm.host.launch import exec_context as askers
from acpterm.host.launch.exec_context import ExecContext, to_record
from acpterm.host.restore import Restorer
from acpterm.host.server.connection import Connection
from acpterm.host.server.dispatch import MethodTable
from acpterm.host.server.peer import PeerProcess
from acpterm.host.state.records import HostRecord
from acpterm.host.state.snapshot import Snapshot
from acpterm.host.state.store import TREES_KEY
from acpterm.host.user.admission import Admission
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.methods import USER_METHODS
from acpterm.host.user.refusing import refusing
from acpterm.keeper.client import KeeperClient, KeeperLostError, embedded_keeper
from acpterm.pty import linux
from acpterm.pty.processes import now as boot_time
from acpterm.pty.tracking.trees import Handover, Trees
from acpterm.runtime.unix_socket import peer_of
from acpterm.terminal.pool import Pool
from acpterm.terminal.terminal import DISCONNECT_GRACE_S

# Seconds that the end takes at most, and that terminals have of them to go: the grace of each, and
# a moment for SIGKILL.
_END_TIMEOUT_S = 4.6
_CLOSE_TIMEOUT_S = DISCONNECT_GRACE_S + 0.5

# Bytes that may wait for a front end: what is shown is to be what is so now.
HIGH_WATER_BYTES: Final = 64 * 1024
# A connection that has received more than this may have left much that is not in use any more.
_LARGE_BYTES: Final = 4 * 1024 * 1024
# Seconds between two looks at what is too old.
_EXPIRY_PERIOD_S: Final = 60.0

_log = structlog.get_logger("acpterm.host")


class Supervision:
    """How a host and the process that it is in end each other.

    `on_terminate` is called when the keeper asks for the end, and when it is lost. `on_failure` is
    called with what a task of the host has failed with, before all others are cancelled: a worker
    of a daemon ends itself then, and leaves the programs to the next one. Without it errors are
    raised as usual.
    """

    def __init__(
        self,
        on_terminate: Callable[[], None] = lambda: None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.on_terminate: Final = on_terminate
        self._on_failure: Final = on_failure

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Report what fails in the block."""
        try:
            yield
        except Exception as error:
            if self._on_failure is not None:
                self._on_failure(error)
            raise

    async def run(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Run a task of the host."""
        with self.guarding():
            await work(*arguments)


class Host:
    """What all connections share. Made by `open_host`."""

    def __init__(
        self, state: HostState, context: ExecContext, trees: Trees, resumption: Resumption
    ) -> None:
        self.settings: Final = state.settings
        self.pool: Final = state.pool
        self.state: Final = state
        self.context = context
        self._trees = trees
        self._connections: set[Connection] = set()
        self._resumption = resumption
        self._admission = Admission(trees, state.registry.get, resumption.holders)
        self._user_names = itertools.count(1)
        self._changed = trio.lowlevel.ParkingLot()
        self._ending = False
        self.end_by = math.inf
        self.keeper_is_lost: KeeperLostError | None = None
        """Set when the keeper is gone."""
        state.registry.on_change = self._mark_changed

    async def serve(
        self,
        stream: trio.abc.Stream,
        context: ExecContext,
        holders: Iterable[tuple[int, float]] = (),
    ) -> None:
        """Serve one agent until it is gone, or the host ends; at once if it is ending.

        `holders`: pid and start time of the process at the other end.
        """
        name = self.state.new_connection_name()
        # Stored with its first request: one that sends nothing is no agent's.
        agent = AgentConnection(context, self.state, name, self._resumption, holders=holders)
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
    ) -> None:
        """Serve one front end of the user's, likewise.

        `terminals`: the ids of those that its process runs in.
        """
        name = f"p{next(self._user_names)}"
        self.state.users += 1
        try:
            await self._serve(
                Connection(
                    stream,
                    UserConnection(context, self.state, self._sessions, terminals),
                    methods,
                    name,
                    high=HIGH_WATER_BYTES,
                    store=self.state.keeper,
                )
            )
        finally:
            self.state.users -= 1

    async def _serve(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._mark_changed()
        if self._ending:
            connection.close()
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            self._mark_changed()
            if connection.received > _LARGE_BYTES:
                give_back_memory()

    @property
    def tracking(self) -> str:
        """How a terminal's processes are known: `cgroup` or `subreaper`."""
        return self._trees.tracking

    def is_needed(self) -> bool:
        """Whether there is a connection, one that may be resumed, or a terminal that is held."""
        return bool(self._connections or self._resumption.absent) or self.state.registry.is_busy

    async def wait_changed(self) -> None:
        """Wait until it may be another answer, whether it is needed."""
        await self._changed.park()

    def _mark_changed(self) -> None:
        self._changed.unpark_all()

    def _sessions(self) -> Iterator[Session]:
        for agent in self._resumption.callers:
            yield from list(agent.sessions.values())

    async def serve_agent_socket(self, stream: trio.SocketStream) -> None:
        """Serve a connection to the agents' socket, if it comes from this user."""

        async def serve(stream: trio.SocketStream, context: ExecContext) -> None:
            with PeerProcess(stream) as peer:
                found = peer.identity
            holders = [] if found is None else [(found.pid, found.started)]
            await self.serve(stream, context, holders)

        await self._serve_socket(stream, serve)

    async def serve_user_socket(self, stream: trio.SocketStream) -> None:
        """Serve a connection to the user's socket, if it comes from this user.

        One that is an agent's is answered with the reason why it is refused.
        """

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
            await self.serve_user(stream, context, methods, verdict.terminals)

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
                # Some twenty quick system calls: a thread would cost more, and there may be none.
                context = askers.of_process(peer.pid, context)
            await serve(stream, context)
        except Exception as error:  # noqa: BLE001  a bug met by one peer costs the others nothing
            _log.error("a connection failed", exc_info=error)

    async def close(self) -> None:
        """Close every connection, those too that are yet to come; wait for the last one's end."""
        if not self._ending:
            self._ending = True
            self.end_by = trio.current_time() + _END_TIMEOUT_S
        self._resumption.expire()
        for connection in list(self._connections):
            connection.close()
        while self._connections:
            await self.wait_changed()

    async def expire_absent(self) -> None:
        """Give the clients of the worker before time to connect again; then end what they had."""
        await trio.sleep(self.settings.resume_timeout)
        self._resumption.expire()
        self.state.windows.settle()
        self._mark_changed()

    async def run_keeper(self, on_terminate: Callable[[], None]) -> None:
        """Receive what the keeper reports.

        When it is lost, end all that runs, whose exit status nobody can know, and answer those that
        wait. Where the service manager stores the programs' terminals, they run on instead, and
        `KeeperLostError` is raised.
        """
        try:
            await self.state.keeper.run(on_terminate=on_terminate)
        except KeeperLostError as error:
            if self.state.keeper.stored:
                _log.error("the keeper is lost: programs run on until the service is started again")
                raise
            self.keeper_is_lost = error
            await self.lose_keeper()
            on_terminate()

    async def lose_keeper(self) -> None:
        """End all that runs, and have those answered that wait for it."""
        _log.error("the keeper is lost: all terminals are ended")
        self.pool.lose_keeper()
        with trio.move_on_after(_END_TIMEOUT_S):
            for entry in self.state.registry:
                await entry.terminal.wait_exited()


@asynccontextmanager
async def open_host(
    settings: Settings,
    context: ExecContext,
    keeper: KeeperClient | None = None,
    snapshot: Snapshot | None = None,
    supervision: Supervision | None = None,
    *,
    socket_path: str | None = None,
) -> AsyncIterator[Host]:
    """Run a host for as long as the block lasts; at its end everything in it is ended.

    `context`: the default environment, directory and limits of terminals. `keeper` makes their
    programs; it is connected, and not ready yet. Without one, a child of this process
    does. `snapshot`: what the worker before has left in the keeper's store. `socket_path`: where a
    daemon listens; what a killed daemon there has left is ended first. Raises `TrackingError`.
    """
    async with AsyncExitStack() as stack:
        snapshot, supervision = snapshot or Snapshot(), supervision or Supervision()
        is_embedded = keeper is None
        host: Host | None = None

        async def lose_keeper() -> None:
            if host is not None:
                await host.lose_keeper()
                await host.close()

        if keeper is None:
            keeper = await stack.enter_async_context(embedded_keeper(lose_keeper))
        trees = Trees(
            settings.tracking,
            parent=keeper.pid,
            inherited=_handover(keeper),
            held=[found.name for found in keeper.terminals],
            socket_path=socket_path,
        )
        stack.callback(trees.close)
        if not is_embedded:
            # From here on, and not before, this worker may change what the next one finds.
            await keeper.ready()
        keeper.put(TREES_KEY, *trees.handover())
        pool = Pool(keeper, trees, grace=settings.kill_grace)
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(supervision.run, trees.run)
        await nursery.start(pool.run)
        recording = await stack.enter_async_context(trio.open_nursery())
        state = HostState(settings, pool, recording, keeper, snapshot.host or _new_host(context))
        resumption = Resumption(state.events)
        host = Host(state, context, trees, resumption)
        Restorer(state, resumption, trees, context, nursery).restore(snapshot, keeper.terminals)
        keeper.terminals.clear()
        keeper.entries.clear()
        if not is_embedded:
            nursery.start_soon(supervision.run, host.run_keeper, supervision.on_terminate)
        nursery.start_soon(supervision.run, state.state.run)
        nursery.start_soon(supervision.run, host.expire_absent)
        nursery.start_soon(
            supervision.run, state.input_monitor.run, lambda: state.events.has_subscribers
        )
        nursery.start_soon(supervision.run, _expire, state)
        if socket_path is not None:
            nursery.start_soon(supervision.run, trees.end_leftovers)
        try:
            yield host
        finally:
            with trio.CancelScope(shield=True):
                await host.close()
                await pool.shut_down(min(_CLOSE_TIMEOUT_S, host.end_by - trio.current_time()))
            recording.cancel_scope.cancel()
            nursery.cancel_scope.cancel()


def _handover(keeper: KeeperClient) -> Handover | None:
    """Return what the worker before knew its trees by."""
    entry = keeper.entries.get(TREES_KEY)
    return None if entry is None else Handover(entry.value, entry.fds)


def _new_host(context: ExecContext) -> HostRecord:
    return HostRecord(started_at=boot_time(), context=to_record(context))


def give_back_memory() -> None:
    """Return what is not in use any more to the system: cycles, and free memory of the heap.

    What was there at the start is left out of collections (`daemon.freeze`): this takes about a
    millisecond, and one more for each thousand terminals and connections.
    """
    gc.collect()
    linux.trim_memory()


async def _expire(state: HostState) -> None:
    """Forget what is too old, now and then; whoever asks for a list has it done at once."""
    while True:
        await trio.sleep(_EXPIRY_PERIOD_S)
        state.registry.expire()
