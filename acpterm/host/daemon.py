"""A host that is a process: for the person and any number of agents on sockets, or for one agent.

Two ways to be one: `serve`, a daemon on Unix sockets, until it is told to end or nobody needs it;
`serve_stdio`, for the one agent that spawned this process, until it is gone.

At the end no new connection is taken, the host ends (`host`), and the sockets are removed. SIGTERM,
SIGINT, SIGHUP and SIGQUIT begin it; a second one does not hurry it.
"""

import contextlib
import gc
import math
import resource
import select
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import structlog
import trio

from acpterm.config import Settings
from acpterm.host import asker as askers
from acpterm.host import logs
from acpterm.host.ending import hear, told_to_end
from acpterm.host.host import Host, open_host
from acpterm.host.shared import Place

FIRST: Final = 10.0
"""Seconds that one which ends by itself waits for the first connection, if not for longer."""

_log = structlog.get_logger("acpterm.daemon")


class Sockets(NamedTuple):
    """What a daemon listens on, and where that is."""

    agents: list[trio.SocketListener]
    users: list[trio.SocketListener]
    agent_path: str
    user_path: str

    def in_line(self) -> bool:
        """Whether somebody has connected who was not accepted yet."""
        look = select.poll()
        for listener in (*self.agents, *self.users):
            look.register(listener.socket.fileno(), select.POLLIN)
        return bool(look.poll(0))


async def serve(
    settings: Settings,
    listen: Callable[[], Sockets],
    *,
    ready: Callable[[], None],
    ending: Callable[[], None],
    patience: float = math.inf,
) -> None:
    """Serve agents and the person on what `listen` gives until a signal; closes it.

    Whoever can connect can also have it end in order: it listens once it minds signals.
    `ready` is called when connections are taken, `ending` when they are no longer. It ends by
    itself when for `patience` seconds nobody was connected and nobody had a terminal.
    """
    asker = askers.own()
    raise_open_files()
    hear()
    freeze()
    async with told_to_end(logs.ending) as told:
        sockets = listen()
        async with (
            open_host(settings, asker, socket_path=sockets.agent_path) as host,
            trio.open_nursery() as nursery,
        ):
            host.shared.place = Place(
                agent_socket=sockets.agent_path,
                user_socket=sockets.user_path,
                patience=patience if patience < math.inf else None,
                tracking=host.tracking,
                end=told.set,
            )
            accepting = trio.CancelScope()
            nursery.start_soon(_accept, accepting, host, sockets)
            ready()
            if patience < math.inf:
                nursery.start_soon(_end_when_idle, host, sockets, patience, told)
            await told.wait()
            ending()
            accepting.cancel()
            await host.close()
            nursery.cancel_scope.cancel()


async def _end_when_idle(host: Host, sockets: Sockets, patience: float, told: trio.Event) -> None:
    # Whoever has started it is yet to connect.
    with trio.move_on_after(FIRST):
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
        if host.is_needed() or sockets.in_line():
            continue
        _log.info("ending: nobody was connected, and there was no terminal", seconds=patience)
        told.set()
        return


async def _accept(scope: trio.CancelScope, host: Host, sockets: Sockets) -> None:
    # The handlers run in a nursery that outlives the listening: theirs is to close, not to break.
    async with trio.open_nursery() as connections:
        with scope:
            async with trio.open_nursery() as nursery:
                for serve_one, listeners in (
                    (host.serve_agent_socket, sockets.agents),
                    (host.serve_user_socket, sockets.users),
                ):
                    nursery.start_soon(
                        partial(
                            trio.serve_listeners,
                            serve_one,
                            listeners,
                            handler_nursery=connections,
                        )
                    )


async def serve_stdio(settings: Settings, stream: trio.abc.Stream) -> None:
    """Serve the agent at the other end of `stream` until it is gone, or a signal ends this."""
    asker = askers.own()
    raise_open_files()
    hear()
    freeze()
    async with (
        told_to_end(logs.ending) as told,
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
