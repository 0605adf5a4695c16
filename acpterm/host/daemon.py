"""Runs a host in this process: as a daemon's worker, or for one agent on stdin and stdout.

`serve` is the main function of a worker: it serves the user's clients and any number of agents on
Unix sockets, until a shutdown is requested or the daemon has been idle for too long. `serve_stdio`
is the main function of `acpterm stdio --embedded`: it serves the agent that spawned this process,
until the agent disconnects.

A shutdown stops accepting connections, closes the host (see `open_host`), and removes the sockets.
SIGTERM, SIGINT, SIGHUP and SIGQUIT start a shutdown. A second signal does not speed it up.
"""

import contextlib
import gc
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import structlog
import trio

from acpterm.config import Settings
from acpterm.host.daemon_state import DaemonInfo
from acpterm.host.host import Host
from acpterm.host.open_host import ALONE, Supervision, open_host
from acpterm.host.server.acceptor import Acceptor
from acpterm.host.server.daemon_sockets import Listening, Sockets, open_sockets
from acpterm.host.state.records import StateVersionError
from acpterm.host.state.snapshot import Snapshot
from acpterm.host.state.store import HTTP_KEY, StoredEntry
from acpterm.host.web_interface import WebInterface
from acpterm.keeper.client import KeeperClient
from acpterm.pty import linux
from acpterm.runtime import exec_context, logs
from acpterm.runtime.descriptors import raise_open_files, reserve
from acpterm.runtime.shutdown_signals import restore_signal_defaults, shutdown_event
from acpterm.runtime.unix_socket import ListenError

FIRST_REQUEST_TIMEOUT_S: Final = 10.0

_ALIVE_PERIOD_S: Final = 1.0
_BOUND_CHECK_S: Final = 2.0
_LOG_CHECK_S: Final = 10.0
_EXIT_FAILED: Final = 70

_log = structlog.get_logger("acpterm.daemon")


class WebServer(WebInterface, Protocol):
    """The daemon's HTTP server, with the methods by which `serve` runs it."""

    def restore(self, entry: StoredEntry | None) -> None:
        """Take over the listening socket of the previous worker, before `run`."""

    async def run(self, host: Host) -> None: ...


async def serve(
    settings: Settings,
    keeper: KeeperClient,
    *,
    sources: Mapping[str, str] | None = None,
    idle_exit_s: float = math.inf,
    web: WebServer | None = None,
) -> None:
    """Serve as a worker of `keeper`, until a shutdown or `idle_exit_s` idle seconds."""
    # Raises `ListenError`, `TrackingError`, `KeeperLostError`, and `StateVersionError` before
    # anything is restored.
    context = exec_context.current()
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
        context = snapshot.host.context.to_context()
    sockets = open_sockets(settings, snapshot.listeners, keeper.entries, keeper.pid)
    end_requested = trio.Event()
    info = DaemonInfo(
        agent_socket=sockets.agent.path,
        user_socket=sockets.user.path,
        idle_exit_s=idle_exit_s if idle_exit_s < math.inf else None,
        end=end_requested.set,
        # If a question waited without end, a job of CI would only time out.
        reaches_user=os.environ.get("CI", "").lower() in ("", "0", "false"),
        web=web,
        sources=sources or {},
    )
    if web is not None:
        web.restore(keeper.entries.get(HTTP_KEY))
    supervision = Supervision(on_terminate=end_requested.set, on_failure=_exit_at_once)
    is_serving = False
    try:
        async with open_host(
            settings, context, keeper, snapshot, supervision, daemon_info=info
        ) as host:
            is_serving = True
            with supervision.guarding():
                sockets.store(keeper)
                await _serve_until(end_requested, host, sockets, idle_exit_s, keeper, web=web)
    except BaseException:
        # The sockets of the previous worker are kept for the next worker.
        if not is_serving:
            sockets.remove(new_only=True)
        raise
    sockets.remove()
    if host.lost_keeper is not None:
        raise host.lost_keeper
    keeper.end()
    _log.info("ended")


async def _serve_until(
    end_requested: trio.Event,
    host: Host,
    sockets: Sockets,
    idle_exit_s: float,
    keeper: KeeperClient,
    *,
    web: WebServer | None,
) -> None:
    accepting = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_accept, accepting, host, sockets, keeper)
        nursery.start_soon(_report_alive, keeper)
        if web is not None:
            nursery.start_soon(web.run, host)
        nursery.start_soon(_rotate_log, f"{sockets.agent.path}.log", keeper.pid)
        if idle_exit_s < math.inf:
            nursery.start_soon(_end_when_idle, host, sockets.has_queued, idle_exit_s, end_requested)
        where = "handed over" if sockets.agent.bound is None else sockets.agent.path
        _log.info("listening", socket=where, pid=keeper.pid)
        await end_requested.wait()
        _log.info("ending")
        accepting.cancel()
        await host.close()
        nursery.cancel_scope.cancel()


def _exit_at_once(error: BaseException) -> None:
    # A clean-up would end the programs; the next worker adopts them.
    _log.critical("the worker failed, another one takes over", exc_info=error)
    os._exit(_EXIT_FAILED)


async def _report_alive(keeper: KeeperClient) -> None:
    """Reset the service manager's watchdog, to show that the event loop runs."""
    while True:
        keeper.alive()
        await trio.sleep(_ALIVE_PERIOD_S)


async def _end_when_idle(
    host: Host,
    has_queued: Callable[[], bool],
    idle_exit_s: float,
    end_requested: trio.Event,
    *,
    first_request_timeout_s: float = FIRST_REQUEST_TIMEOUT_S,
) -> None:
    # The process that started the daemon has not connected yet.
    with trio.move_on_after(first_request_timeout_s):
        while not host.is_needed():
            await host.wait_changed()
    while True:
        while host.is_needed():
            await host.wait_changed()
        with trio.move_on_after(idle_exit_s):
            while not host.is_needed():
                await host.wait_changed()
            continue
        # A connection that is being accepted takes two turns of the event loop to reach the host.
        for _ in range(2):
            await trio.lowlevel.checkpoint()
        if host.is_needed() or has_queued():
            continue
        _log.info("ending: no client was connected, and there was no terminal", seconds=idle_exit_s)
        end_requested.set()
        return


async def _accept(
    scope: trio.CancelScope, host: Host, sockets: Sockets, keeper: KeeperClient
) -> None:
    # The nursery of the connections outlives that of the listeners, so that cancelling the
    # listeners does not cancel the connections: the host closes the connections.
    async with trio.open_nursery() as connections:
        with scope:
            async with trio.open_nursery() as nursery:
                agents = Acceptor(host.serve_agent_socket, connections, reserved=False)
                users = Acceptor(host.serve_user_socket, connections, reserved=True)
                # In the order in which they are bound, see `daemon_sockets`.
                kinds = (sockets.user, users), (sockets.agent, agents)
                for kind, acceptor in kinds:
                    for listener in kind.listeners:
                        nursery.start_soon(acceptor.run, listener)
                nursery.start_soon(_keep_bound, kinds, keeper, nursery)


async def _rotate_log(path: str, pid: int) -> None:
    # There is a log only if an acpterm command started the daemon. Its first line is the keeper's
    # pid.
    while True:
        with contextlib.suppress(OSError):
            logs.rotate(path, pid)
        await trio.sleep(_LOG_CHECK_S)


async def _keep_bound(
    kinds: Iterable[tuple[Listening, Acceptor]], keeper: KeeperClient, nursery: trio.Nursery
) -> None:
    """Bind sockets again whose files were removed, in the order of `kinds`."""
    while True:
        await trio.sleep(_BOUND_CHECK_S)
        for kind, acceptor in kinds:
            try:
                listener = kind.rebind(keeper)
            except (ListenError, OSError) as error:
                # An OSError means that no descriptor was left for this check. The next may succeed.
                _log.warning("the socket was removed and cannot be bound again", error=str(error))
                continue
            if listener is not None:
                _log.warning("the socket was removed and is bound again", socket=kind.path)
                nursery.start_soon(acceptor.run, listener)


async def serve_stdio(settings: Settings, stream: trio.abc.Stream) -> None:
    """Serve the agent at the other end of `stream`, until it disconnects or a signal arrives."""
    context = exec_context.current()
    raise_open_files()
    restore_signal_defaults()
    freeze()
    linux.forbid_inspection()
    async with (
        shutdown_event(logs.log_shutdown) as end_requested,
        open_host(settings, context, daemon_info=ALONE) as host,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_close_when, end_requested, host)
        await host.serve(stream, context)
        nursery.cancel_scope.cancel()


async def _close_when(end_requested: trio.Event, host: Host) -> None:
    await end_requested.wait()
    await host.close()


def freeze() -> None:
    """Exempt the objects that exist now from garbage collection, which blocks the event loop."""
    gc.collect()
    gc.freeze()
