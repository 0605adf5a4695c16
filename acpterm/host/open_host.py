"""Starts and supervises all tasks of a host, and closes the host at the end (`open_host`).

A host is closed when the block of `open_host` ends, or by `Host.close`. Closing takes at most five
seconds, because all steps have one deadline (`Terminals.end_by`):

1. Each connection closes. This releases its terminals, and completes the requests that wait for
   them.
2. The pool waits until all terminals have ended.
3. The providers remove what is left of the terminals.

After that, the pending entries of the audit log are written. This has a time limit of its own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Final

import trio

from acpterm.config import Settings
from acpterm.host.agent.resumption import Resumption
from acpterm.host.audit_trail import AuditTrail, open_audit_log
from acpterm.host.daemon_state import DaemonInfo, DaemonState
from acpterm.host.events import EventBus
from acpterm.host.guard import Guard
from acpterm.host.hooks import Hooks
from acpterm.host.host import Host
from acpterm.host.policy import HostPolicy
from acpterm.host.registry import TerminalRegistry
from acpterm.host.restore import Restorer
from acpterm.host.snapshots import Snapshots
from acpterm.host.state.records import ContextRecord, HostRecord
from acpterm.host.state.snapshot import Snapshot
from acpterm.host.state.store import HOST_KEY, TREES_KEY
from acpterm.host.state.writer import StateWriter
from acpterm.host.terminals import Terminals
from acpterm.keeper.client import KeeperClient
from acpterm.keeper.startup import embedded_keeper
from acpterm.pty.processes import now as boot_time
from acpterm.pty.tracking.trees import Handover, Trees
from acpterm.runtime.exec_context import ExecContext
from acpterm.terminal.terminal import DISCONNECT_GRACE_S

# How long terminals may take to end when a host is closed: their grace period, and some time after
# SIGKILL.
_CLOSE_TIMEOUT_S: Final = DISCONNECT_GRACE_S + 0.5
# The time between two searches for terminals that are too old.
_EXPIRY_PERIOD_S: Final = 60.0
ALONE: Final = DaemonInfo(reaches_user=False)


class Supervision:
    """How a host ends its process, on request or on failure."""

    # The worker of a daemon exits in `on_failure`, and leaves the programs to the next worker. If
    # it returns or is None, the error propagates.

    def __init__(
        self,
        on_terminate: Callable[[], None] = lambda: None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.on_terminate: Final = on_terminate
        self._on_failure: Final = on_failure

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Call `on_failure` with an error that is raised in the block, then let it propagate."""
        try:
            yield
        except Exception as error:
            if self._on_failure is not None:
                self._on_failure(error)
            raise

    async def run(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Run `work(*arguments)`, a task of the host; call `on_failure` if it raises."""
        with self.guarding():
            await work(*arguments)

    async def start(
        self, work: Callable[..., Awaitable[object]], *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Like `run`, for `trio.Nursery.start`."""
        with self.guarding():
            await work(task_status=task_status)


@asynccontextmanager
async def open_host(
    settings: Settings,
    context: ExecContext,
    keeper: KeeperClient | None = None,
    snapshot: Snapshot | None = None,
    supervision: Supervision | None = None,
    *,
    daemon_info: DaemonInfo = DaemonInfo(),  # noqa: B008  it is immutable
) -> AsyncIterator[Host]:
    """Run a host during the block; at the end of the block close it, which ends its terminals."""
    async with AsyncExitStack() as stack:
        snapshot, supervision = snapshot or Snapshot(), supervision or Supervision()
        is_embedded = keeper is None
        host: Host | None = None

        async def lose_keeper() -> None:
            if host is not None:
                await host.end_terminals()
                await host.close()

        if keeper is None:
            keeper = await stack.enter_async_context(embedded_keeper(lose_keeper))
        trees = Trees(
            settings.tracking,
            parent=keeper.pid,
            inherited=_handover(keeper),
            held=[found.name for found in keeper.terminals],
            socket_path=daemon_info.agent_socket,
        )
        stack.callback(trees.close)
        if not is_embedded:
            # Until now, a worker that fails leaves the stored state unchanged for another worker.
            # From here on, this worker changes the stored state.
            await keeper.ready()
        keeper.put(TREES_KEY, *trees.handover())
        # The outermost nursery: the audit log must still record how everything else ends.
        recording = await stack.enter_async_context(trio.open_nursery())
        stack.callback(recording.cancel_scope.cancel)
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(supervision.run, trees.run)
        background = await stack.enter_async_context(trio.open_nursery())
        record = snapshot.host or _new_host(context)
        writer = StateWriter(keeper)
        audit_log = open_audit_log(settings, writer, snapshot.audit)
        trail = AuditTrail(audit_log)
        daemon = DaemonState(daemon_info, keeper, trees.tracking, record.started_at)
        host = _make_host(
            settings=settings,
            context=context,
            daemon=daemon,
            trees=trees,
            nursery=background,
            record=record,
            writer=writer,
            trail=trail,
        )
        terminals, guard = host.terminals, host.guard
        if audit_log is not None:
            await recording.start(supervision.start, audit_log.run)
        # In the outer nursery, because the clean-ups of terminals need the providers' connections
        # to other hosts until the end.
        await recording.start(supervision.start, guard.policy.run)
        await nursery.start(terminals.pool.run)
        Restorer(terminals, guard, host.resumption, trees, context).restore(
            snapshot, keeper.terminals
        )
        keeper.terminals.clear()
        keeper.entries.clear()
        if not is_embedded:
            nursery.start_soon(supervision.run, host.run_keeper, supervision.on_terminate)
        for work in (
            writer.run,
            host.expire_unresumed,
            Hooks(settings, guard.approvals, terminals.events, terminals.windows).run,
            terminals.input_monitor.run,
            terminals.limit_monitor.run,
            terminals.background.run,
            partial(_expire_periodically, terminals.registry),
        ):
            nursery.start_soon(supervision.run, work)
        if daemon_info.agent_socket is not None:
            nursery.start_soon(supervision.run, trees.end_leftovers)
        try:
            yield host
        finally:
            with trio.CancelScope(shield=True):
                await host.close()
                timeout = min(_CLOSE_TIMEOUT_S, terminals.end_by - trio.current_time())
                await terminals.pool.shut_down(timeout)
            background.cancel_scope.cancel()
            nursery.cancel_scope.cancel()


def _make_host(
    *,
    settings: Settings,
    context: ExecContext,
    daemon: DaemonState,
    trees: Trees,
    nursery: trio.Nursery,
    record: HostRecord,
    writer: StateWriter,
    trail: AuditTrail,
) -> Host:
    writer.changed(HOST_KEY, record.encode)
    policy = HostPolicy(settings, daemon.info.own_paths(settings), trees.daemon)
    terminals = Terminals(
        settings=settings,
        writer=writer,
        trees=trees,
        nursery=nursery,
        events=EventBus(trail),
        policy=policy,
        daemon=daemon,
    )
    is_daemon = daemon.info.agent_socket is not None
    guard = Guard(
        policy,
        trail,
        terminals.registry,
        writer,
        snapshots=Snapshots(terminals.start_task, is_on=settings.undo and is_daemon),
        reaches_user=daemon.info.reaches_user,
    )
    return Host(
        terminals=terminals,
        guard=guard,
        daemon=daemon,
        resumption=Resumption(record, terminals, guard),
        trees=trees,
        context=context,
    )


def _handover(keeper: KeeperClient) -> Handover | None:
    entry = keeper.entries.get(TREES_KEY)
    return None if entry is None else Handover(entry.value, entry.fds)


def _new_host(context: ExecContext) -> HostRecord:
    return HostRecord(started_at=boot_time(), context=ContextRecord.from_context(context))


async def _expire_periodically(registry: TerminalRegistry) -> None:
    while True:
        await trio.sleep(_EXPIRY_PERIOD_S)
        registry.expire()
