"""Being told what happens for as long as somebody reads it.

What watches ends with Ctrl-C, which is how one ends it and no failure; with another signal, as
killed by that; or when nobody reads stdout any more, as before `head`.
"""

import signal
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio
from msgspec import Raw, ValidationError
from msgspec.json import decode

from acpterm.acp import Empty
from acpterm.acp.person import EventNotification, EventsRequest
from acpterm.client.person.front import Front
from acpterm.client.person.reading.stdout import while_read
from acpterm.jsonrpc import REQUEST_CANCELLED, RpcError

_SIGNALS: Final = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
# Events that are read before they are taken.
_AHEAD: Final = 64


class GoneError(Exception):
    """The daemon has ended while it was watched."""


def gone(front: Front, error: RpcError) -> GoneError:
    """Say why an answer that was to come did not."""
    # Nobody here has cancelled it: the daemon does so when it ends.
    ends = error.code == REQUEST_CANCELLED
    return GoneError(f"{front.endpoint.whom} is gone" if ends else error.message)


async def until_ended(work: Callable[[], Awaitable[object]]) -> int:
    """Do work until it is done, a signal ends it or nobody reads stdout: the exit status."""
    status = 0

    async def watch_signals() -> None:
        nonlocal status
        with trio.open_signal_receiver(*_SIGNALS) as signals:
            started.set()
            async for number in signals:
                status = 0 if number == signal.SIGINT else 128 + number
                nursery.cancel_scope.cancel()

    started = trio.Event()
    async with while_read(), trio.open_nursery() as nursery:
        nursery.start_soon(watch_signals)
        await started.wait()
        await work()
        nursery.cancel_scope.cancel()
    return status


async def follow(front: Front, take: Callable[[EventNotification, Raw], Awaitable[object]]) -> None:
    """Give `take` everything that happens, until cancelled: as it is, and as it came.

    While `take` takes its time nothing more is read: the daemon counts what it cannot tell then.
    Raises `GoneError` when the daemon ends.
    """
    token = front.token()
    come: deque[Raw] = deque()
    news, room = trio.Event(), trio.Event()

    def told(method: str, params: Raw) -> None:
        if method == "_acpterm/event":
            come.append(params.copy())
            news.set()

    async def pace() -> None:
        nonlocal room
        while len(come) >= _AHEAD:
            room = trio.Event()
            await room.wait()

    async def ask() -> None:
        try:
            await front.ask("events", EventsRequest(token), Empty)
        except RpcError as error:
            raise gone(front, error) from error

    front.told, front.endpoint.pace = told, pace
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        while True:
            await news.wait()
            news = trio.Event()
            while come:
                params = come.popleft()
                room.set()
                # What cannot be read is of a newer daemon: nothing that this could show.
                with suppress(ValidationError):
                    event = decode(params, type=EventNotification)
                    if event.token == token:
                        await take(event, params)
