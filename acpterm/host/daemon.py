"""A host that is a process: for the person and any number of agents on sockets, or for one agent.

Two ways to be one: `serve`, a daemon on Unix sockets, until it is told to end or nobody needs it;
`serve_stdio`, for the one agent that spawned this process, until it is gone.

At the end no new connection is taken, the host ends (`host`), and the sockets are removed. SIGTERM,
SIGINT, SIGHUP and SIGQUIT begin it; a second one does not hurry it.
"""

import contextlib
import gc
import math
import os
import resource
from collections.abc import Callable
from typing import Final

import structlog
import trio

from acpterm.config import Settings
from acpterm.host.host import Host, Supervision, open_host
from acpterm.host.host_state import DaemonInfo
from acpterm.host.launch import exec_context as askers
from acpterm.host.server.accepting import Acceptor
from acpterm.host.server.listener import ListenError
from acpterm.host.server.sockets import Listening, Sockets, open_sockets
from acpterm.host.state.records import StateVersionError
from acpterm.host.state.snapshot import Snapshot
from acpterm.keeper.client import KeeperClient
from acpterm.pty import linux
from acpterm.runtime import logs
from acpterm.runtime.descriptors import reserve
from acpterm.runtime.shutdown_signals import restore_signal_defaults, shutdown_event

FIRST_REQUEST_TIMEOUT_S: Final = 10.0
"""Seconds that one which ends by itself waits for the first connection, if not for longer."""

_ALIVE_PERIOD_S: Final = 1.0
_BOUND_CHECK_S: Final = 2.0
_LOG_CHECK_S: Final = 10.0
_FAILED: Final = 70

_log = structlog.get_logger("acpterm.daemon")


async def serve(
    settings: Settings,
    keeper: KeeperClient,
    *,
    patience: float = math.inf,
) -> None:
    """Be a worker of `keeper`: serve agents and the user until the keeper asks for the end.

    It ends by itself when for
    `patience` seconds nothing was connected and no terminal held. Raises `StateVersionError`, and
    takes nothing over, if the worker before was a newer acpterm; `ListenError`, `TrackingError`;
    `KeeperLostError` when all has been ended since the keeper is gone.
    """
    context = askers.current()
    raise_open_files()
    reserve.keep()
    restore_signal_defaults()
    freeze()
    linux.forbid_inspection()
    await keeper.connect()
    try:
        snapshot = Snapshot.read(keeper.entries)
    except StateVersionError as error:
        keeper.refuse(f"refuses: {error}")
        raise
    if snapshot.host is not None and snapshot.host.context is not None:
        context = askers.from_record(snapshot.host.context)
    sockets = open_sockets(settings, snapshot.listeners, keeper.entries, keeper.pid)
    ending = trio.Event()
    supervision = Supervision(on_terminate=ending.set, on_failure=_die)
    serves = False
    try:
        async with open_host(
            settings, context, keeper, snapshot, supervision, socket_path=sockets.agent_path
        ) as host:
            serves = True
            with supervision.guarding():
                host.state.daemon_info = DaemonInfo(
                    agent_socket=sockets.agent_path,
                    user_socket=sockets.user_path,
                    idle_exit_s=patience if patience < math.inf else None,
                    tracking=host.tracking,
                    end=ending.set,
                )
                sockets.store(keeper)
                await _serve_until(ending, host, sockets, patience, keeper)
    except BaseException:
        # What the worker before has bound stays for the next one.
        if not serves:
            sockets.remove(new_only=True)
        raise
    sockets.remove()
    if host.keeper_is_lost is not None:
        raise host.keeper_is_lost
    keeper.end()
    _log.info("ended")


async def _serve_until(
    ending: trio.Event, host: Host, sockets: Sockets, patience: float, keeper: KeeperClient
) -> None:
    """Serve until the end is asked for, or the keeper is lost."""
    accepting = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_accept, accepting, host, sockets, keeper)
        nursery.start_soon(_report_alive, keeper)
        nursery.start_soon(_rotate_log, f"{sockets.agent_path}.log", keeper.pid)
        if patience < math.inf:
            nursery.start_soon(_end_when_idle, host, sockets.has_queued, patience, ending)
        where = "handed over" if sockets.is_handed else sockets.agent_path
        _log.info("listening", socket=where, pid=keeper.pid)
        await ending.wait()
        _log.info("ending")
        accepting.cancel()
        await host.close()
        nursery.cancel_scope.cancel()


def _die(error: BaseException) -> None:
    """End this process at once: the next worker goes on with the programs, which unwinding ends."""
    _log.critical("the worker failed, another one takes over", exc_info=error)
    os._exit(_FAILED)


async def _report_alive(keeper: KeeperClient) -> None:
    """Have the service manager see that this loop turns."""
    while True:
        keeper.alive()
        await trio.sleep(_ALIVE_PERIOD_S)


async def _end_when_idle(
    host: Host, has_queued: Callable[[], bool], patience: float, told: trio.Event
) -> None:
    # Whoever has started it is yet to connect.
    with trio.move_on_after(FIRST_REQUEST_TIMEOUT_S):
        while not host.is_needed():
            await host.wait_changed()
    while True:
        while host.is_needed():
            await host.wait_changed()
        with trio.move_on_after(patience):
            while not host.is_needed():
                await host.wait_changed()
            continue
        # Whoever is accepted at this moment is one of the host's connections two turns later.
        for _ in range(2):
            await trio.lowlevel.checkpoint()
        if host.is_needed() or has_queued():
            continue
        _log.info("ending: nobody was connected, and there was no terminal", seconds=patience)
        told.set()
        return


async def _accept(
    scope: trio.CancelScope, host: Host, sockets: Sockets, keeper: KeeperClient
) -> None:
    # The handlers run in a nursery that outlives the listening: theirs is to close, not to break.
    async with trio.open_nursery() as connections:
        with scope:
            async with trio.open_nursery() as nursery:
                agents = Acceptor(host.serve_agent_socket, connections, reserved=False)
                users = Acceptor(host.serve_user_socket, connections, reserved=True)
                for acceptor, kind in ((agents, sockets.agent), (users, sockets.user)):
                    for listener in kind.listeners:
                        nursery.start_soon(acceptor.run, listener)
                    nursery.start_soon(_keep_bound, kind, keeper, acceptor, nursery)


async def _rotate_log(path: str, pid: int) -> None:
    """Keep the log of a daemon that a command has started from growing for ever."""
    while True:
        with contextlib.suppress(OSError):
            logs.rotate(path, pid)
        await trio.sleep(_LOG_CHECK_S)


async def _keep_bound(
    kind: Listening, keeper: KeeperClient, acceptor: Acceptor, nursery: trio.Nursery
) -> None:
    """Bind a socket again whose file was removed: nobody could reach the terminals otherwise."""
    while True:
        await trio.sleep(_BOUND_CHECK_S)
        try:
            listener = kind.rebind(keeper)
        except (ListenError, OSError) as error:
            # An OSError: no descriptor is left to look with. There may be one the next time.
            _log.warning("the socket was removed and cannot be bound again", error=str(error))
            continue
        if listener is not None:
            _log.warning("the socket was removed and is bound again", socket=kind.path)
            nursery.start_soon(acceptor.run, listener)


async def serve_stdio(settings: Settings, stream: trio.abc.Stream) -> None:
    """Serve the agent at the other end of `stream` until it is gone, or a signal ends this."""
    context = askers.current()
    raise_open_files()
    restore_signal_defaults()
    freeze()
    linux.forbid_inspection()
    async with (
        shutdown_event(logs.log_shutdown) as told,
        open_host(settings, context) as host,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_close_when, told, host)
        await host.serve(stream, context)
        nursery.cancel_scope.cancel()


async def _close_when(told: trio.Event, host: Host) -> None:
    await told.wait()
    await host.close()


def raise_open_files() -> None:
    """Allow this process as many open files as it may have: a terminal takes two or three."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def freeze() -> None:
    """Have what is there now, which stays, left out of collections: those hold everything up."""
    gc.collect()
    gc.freeze()
