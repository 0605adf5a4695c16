"""The host as a whole: one nursery that supervises the pool, the listeners and each connection.

Two ways to be one: `serve`, a daemon on Unix sockets for any number of agents, until a signal;
`serve_stdio`, for the one agent that spawned this process, until it is gone.

The end, in order, within five seconds: no new connection is taken; each connection closes, which
releases its terminals and answers what is pending; the pool waits until its terminals are gone; the
socket is removed. SIGTERM, SIGINT and SIGHUP begin it; a second one does not hurry it.
"""

import contextlib
import gc
import itertools
import math
import os
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import structlog
import trio

from acpterm.config import Settings
from acpterm.host import asker as askers
from acpterm.host.asker import Asker
from acpterm.host.caller import Caller
from acpterm.host.connection import Connection
from acpterm.host.ending import hear, told_to_end
from acpterm.host.keepsakes import Keepsakes
from acpterm.host.listener import peer_of
from acpterm.pty.trees import Trees, open_trees
from acpterm.terminal import FAREWELL, Pool

# Seconds that the end takes at most, and that terminals have of them to go: the grace of each, and
# a moment for SIGKILL.
_END = 4.6
_FAREWELL = FAREWELL + 0.5

_log = structlog.get_logger("acpterm.daemon")


class Host:
    """What all connections share. Made by `open_host`."""

    def __init__(self, settings: Settings, pool: Pool, asker: Asker) -> None:
        self.settings = settings
        self.pool = pool
        self.asker = asker
        self.keepsakes = Keepsakes(number=settings.keep_released, size=settings.keep_released_bytes)
        self._connections: set[Connection] = set()
        self._names = itertools.count(1)
        self._idle = trio.Event()
        self._idle.set()
        self._busy = trio.Event()
        self._ending = False
        self.end_by = math.inf

    async def serve(self, stream: trio.abc.Stream, asker: Asker) -> None:
        """Serve one connection until it is closed, by either side; at once if the host ends."""
        caller = Caller(asker, self.settings, self.pool, self.keepsakes)
        connection = Connection(stream, caller, f"c{next(self._names)}")
        self._connections.add(connection)
        if self._idle.is_set():
            self._idle = trio.Event()
            self._busy.set()
        if self._ending:
            connection.close()
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            if not self._connections:
                self._idle.set()
                self._busy = trio.Event()

    async def wait_idle(self) -> None:
        """Wait until nobody is connected: terminals end with the connection that made them."""
        await self._idle.wait()

    async def wait_busy(self) -> None:
        """Wait until somebody is connected."""
        await self._busy.wait()

    async def serve_socket(self, stream: trio.SocketStream) -> None:
        """Serve a connection to a Unix socket, if it comes from this user."""
        try:
            peer = peer_of(stream)
            if peer.uid != os.geteuid():
                _log.warning("connection refused: it is another user's", uid=peer.uid)
                await stream.aclose()
                return
            asker = self.asker
            if peer.pid:
                asker = await trio.to_thread.run_sync(
                    askers.of_process, peer.pid, asker, abandon_on_cancel=True
                )
            await self.serve(stream, asker)
        except Exception as error:  # noqa: BLE001  a bug met by one agent costs the others nothing
            _log.error("a connection failed", exc_info=error)

    async def close(self) -> None:
        """Close every connection, those too that are yet to come; wait for the last one's end."""
        if not self._ending:
            self._ending = True
            self.end_by = trio.current_time() + _END
        for connection in list(self._connections):
            connection.close()
        while self._connections:
            await self._idle.wait()


@asynccontextmanager
async def open_host(
    settings: Settings, asker: Asker, trees: Trees | None = None
) -> AsyncIterator[Host]:
    """Run a host for as long as the block lasts; at its end everything in it is ended.

    `asker`: whose environment, folder and limits a connection's terminals get by default. `trees`:
    those of this process, where others than the host start programs too; else it has its own.
    Raises `TrackingError`.
    """
    async with AsyncExitStack() as stack:
        if trees is None:
            trees = await stack.enter_async_context(open_trees(settings.tracking))
        pool = Pool(
            trees,
            grace=settings.kill_grace,
            spawner=settings.spawner,
            pidfds=settings.pidfds,
        )
        nursery = await stack.enter_async_context(trio.open_nursery())
        await nursery.start(pool.run)
        host = Host(settings, pool, asker)
        try:
            yield host
        finally:
            with trio.CancelScope(shield=True):
                await host.close()
                await pool.shut_down(min(_FAREWELL, host.end_by - trio.current_time()))
            nursery.cancel_scope.cancel()


async def serve(
    settings: Settings,
    listen: Callable[[], list[trio.SocketListener]],
    *,
    ready: Callable[[], None],
    ending: Callable[[], None],
    patience: float = math.inf,
) -> None:
    """Serve agents on what `listen` gives until SIGTERM, SIGINT or SIGHUP; closes it.

    Whoever can connect can also have it end in order: it listens once it minds signals.
    `ready` is called when connections are taken, `ending` when they are no longer. It ends by
    itself when nobody was connected for `patience` seconds.
    """
    asker = askers.own()
    raise_open_files()
    hear()
    freeze()
    async with told_to_end() as told:
        listeners = listen()
        async with open_host(settings, asker) as host, trio.open_nursery() as nursery:
            accepting = trio.CancelScope()
            nursery.start_soon(_accept, accepting, host, listeners)
            ready()
            if patience < math.inf:
                nursery.start_soon(_end_when_idle, host, patience, told)
            await told.wait()
            ending()
            accepting.cancel()
            await host.close()
            nursery.cancel_scope.cancel()


async def _end_when_idle(host: Host, patience: float, told: trio.Event) -> None:
    while True:
        await host.wait_idle()
        with trio.move_on_after(patience):
            await host.wait_busy()
            continue
        _log.info("ending: nobody was connected", seconds=patience)
        told.set()
        return


async def _accept(
    scope: trio.CancelScope, host: Host, listeners: list[trio.SocketListener]
) -> None:
    # The handlers run in a nursery that outlives the listening: theirs is to close, not to break.
    async with trio.open_nursery() as connections:
        with scope:
            await trio.serve_listeners(host.serve_socket, listeners, handler_nursery=connections)


async def serve_stdio(settings: Settings, stream: trio.abc.Stream) -> None:
    """Serve the agent at the other end of `stream` until it is gone, or a signal ends this."""
    asker = askers.own()
    raise_open_files()
    hear()
    freeze()
    async with (
        told_to_end() as told,
        open_host(settings, asker) as host,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_close_when, told, host)
        await host.serve(stream, asker)
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
