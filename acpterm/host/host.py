"""The host as a whole: one nursery that supervises the pool, and each connection.

The end, in order, within five seconds: each connection closes, which releases its terminals and
answers what is pending; the pool waits until its terminals are gone. It begins when the block that
`open_host` is used in is left, or by `Host.close`.
"""

import gc
import itertools
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import structlog
import trio

from acpterm.config import Settings
from acpterm.host import asker as askers
from acpterm.host.agents.caller import Caller
from acpterm.host.agents.session import Session
from acpterm.host.agents.table import AGENT
from acpterm.host.asker import Asker
from acpterm.host.connection import Connection
from acpterm.host.events import Happening
from acpterm.host.listener import peer_of
from acpterm.host.method import Methods
from acpterm.host.outbox import Outbox
from acpterm.host.people.person import Person
from acpterm.host.people.refusing import refusing
from acpterm.host.people.table import PERSON
from acpterm.host.shared import Shared
from acpterm.pty import linux
from acpterm.pty.trees import Trees, open_trees
from acpterm.terminal.pool import Pool
from acpterm.terminal.terminal import FAREWELL

# Seconds that the end takes at most, and that terminals have of them to go: the grace of each, and
# a moment for SIGKILL.
_END = 4.6
_FAREWELL = FAREWELL + 0.5

# Bytes that may wait for a front end: what is shown is to be what is so now.
HIGH: Final = 64 * 1024
# A connection that has received more than this may have left much that is not in use any more.
_LARGE_BYTES: Final = 4 * 1024 * 1024
# Seconds between two looks at what is too old.
_ROUND: Final = 60.0

_log = structlog.get_logger("acpterm.host")


class Host:
    """What all connections share. Made by `open_host`."""

    def __init__(self, shared: Shared, asker: Asker, trees: Trees) -> None:
        self.settings: Final = shared.settings
        self.pool: Final = shared.pool
        self.shared: Final = shared
        self.asker = asker
        self._trees = trees
        self._connections: set[Connection] = set()
        self._callers: set[Caller] = set()
        self._names = itertools.count(1)
        self._changed = trio.lowlevel.ParkingLot()
        self._ending = False
        self.end_by = math.inf
        shared.roster.changed = self._note

    async def serve(self, stream: trio.abc.Stream, asker: Asker) -> None:
        """Serve one agent until it is gone, or the host ends; at once if it is ending."""
        name = f"c{next(self._names)}"
        outbox = Outbox(stream)
        caller = Caller(asker, self.shared, outbox, name)
        self._callers.add(caller)
        self.shared.agents += 1
        self.shared.bus.publish(Happening("connected", connection=name))
        try:
            await self._serve(Connection(stream, outbox, caller, AGENT, name))
        finally:
            self._callers.discard(caller)
            self.shared.agents -= 1
            agent = caller.agent.name
            self.shared.bus.publish(Happening("disconnected", connection=name, agent=agent))

    async def serve_person(
        self, stream: trio.abc.Stream, asker: Asker, methods: Methods = PERSON
    ) -> None:
        """Serve one front end of the person's, likewise."""
        name = f"p{next(self._names)}"
        self.shared.people += 1
        try:
            outbox = Outbox(stream, HIGH)
            person = Person(asker, self.shared, outbox, self._sessions)
            await self._serve(Connection(stream, outbox, person, methods, name))
        finally:
            self.shared.people -= 1

    async def _serve(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._note()
        if self._ending:
            connection.close()
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            self._note()
            if connection.received > _LARGE_BYTES:
                give_back_memory()

    @property
    def tracking(self) -> str:
        """How a terminal's processes are known: `cgroup` or `subreaper`."""
        return self._trees.tracking

    def is_needed(self) -> bool:
        """Whether somebody is connected, or holds a terminal."""
        return bool(self._connections) or self.shared.roster.busy

    async def wait_changed(self) -> None:
        """Wait until it may be another answer, whether it is needed."""
        await self._changed.park()

    def _note(self) -> None:
        self._changed.unpark_all()

    def _sessions(self) -> Iterator[Session]:
        for caller in list(self._callers):
            yield from list(caller.sessions.values())

    async def serve_agent_socket(self, stream: trio.SocketStream) -> None:
        """Serve a connection to the agents' socket, if it comes from this user."""
        await self._serve_socket(stream, self.serve)

    async def serve_user_socket(self, stream: trio.SocketStream) -> None:
        """Serve a connection to the person's socket, if it comes from this user.

        One that comes from a terminal of an agent's is told that this is not for agents.
        """

        async def serve(stream: trio.SocketStream, asker: Asker) -> None:
            pid = peer_of(stream).pid
            found = pid and await self._trees.whose(pid)
            entry = self.shared.roster.get(found) if found else None
            if found and (entry is None or not entry.is_users):
                _log.warning("connection refused: it is an agent's", terminal=found)
                await self.serve_person(stream, asker, refusing(found))
            else:
                await self.serve_person(stream, asker)

        await self._serve_socket(stream, serve)

    async def _serve_socket(
        self,
        stream: trio.SocketStream,
        serve: Callable[[trio.SocketStream, Asker], Awaitable[None]],
    ) -> None:
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
            await serve(stream, asker)
        except Exception as error:  # noqa: BLE001  a bug met by one peer costs the others nothing
            _log.error("a connection failed", exc_info=error)

    async def close(self) -> None:
        """Close every connection, those too that are yet to come; wait for the last one's end."""
        if not self._ending:
            self._ending = True
            self.end_by = trio.current_time() + _END
        for connection in list(self._connections):
            connection.close()
        while self._connections:
            await self.wait_changed()


@asynccontextmanager
async def open_host(
    settings: Settings,
    asker: Asker,
    trees: Trees | None = None,
    *,
    socket_path: str | None = None,
) -> AsyncIterator[Host]:
    """Run a host for as long as the block lasts; at its end everything in it is ended.

    `asker`: whose environment, folder and limits a connection's terminals get by default. `trees`:
    those of this process, where others than the host start programs too; else it has its own.
    `socket_path`: where a daemon listens, which first ends what a killed one there has left.
    Raises `TrackingError`.
    """
    async with AsyncExitStack() as stack:
        if trees is None:
            trees = await stack.enter_async_context(
                open_trees(settings.tracking, socket_path=socket_path)
            )
        pool = Pool(
            trees,
            grace=settings.kill_grace,
            spawner=settings.spawner,
            pidfds=settings.pidfds,
        )
        nursery = await stack.enter_async_context(trio.open_nursery())
        await nursery.start(pool.run)
        recording = await stack.enter_async_context(trio.open_nursery())
        shared = Shared(settings, pool, recording)
        host = Host(shared, asker, trees)
        nursery.start_soon(shared.attention.run, lambda: shared.bus.heard)
        nursery.start_soon(_expire, shared)
        nursery.start_soon(trees.end_leftovers)
        try:
            yield host
        finally:
            with trio.CancelScope(shield=True):
                await host.close()
                await pool.shut_down(min(_FAREWELL, host.end_by - trio.current_time()))
            recording.cancel_scope.cancel()
            nursery.cancel_scope.cancel()


def give_back_memory() -> None:
    """Return what is not in use any more to the system: cycles, and free memory of the heap.

    What was there at the start is left out of collections (`daemon.freeze`): this takes about a
    millisecond, and one more for each thousand terminals and connections.
    """
    gc.collect()
    linux.trim_memory()


async def _expire(shared: Shared) -> None:
    """Forget what is too old, now and then; whoever asks for a list has it done at once."""
    while True:
        await trio.sleep(_ROUND)
        shared.roster.expire()
