"""Being told what happens for as long as somebody reads it.

What watches ends with Ctrl-C, which is how one ends it and no failure; with another signal, as
killed by that; or when nobody reads stdout any more, as before `head`.
"""

import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio
from msgspec import Raw, ValidationError
from msgspec.json import decode, encode

from acpterm.acp import Empty
from acpterm.acp.user_api import EventNotification, EventsRequest
from acpterm.client.endpoint import LostError
from acpterm.client.user.client import Front
from acpterm.client.user.event_format import RECONNECTED
from acpterm.client.user.output.stdout import while_read
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

    When the daemon's worker was replaced, events may be missing: an event `RECONNECTED` says so.

    While `take` takes its time nothing more is read: the daemon counts what it cannot tell then.
    Raises `GoneError` when the daemon ends.
    """
    events = _Events(front)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.ask)
        while True:
            params = await events.next()
            # What cannot be read is of a newer daemon: nothing that this could show.
            with suppress(ValidationError):
                event = decode(params, type=EventNotification)
                if event.token == events.token:
                    await take(event, params)


class _Events:
    """The events that are told, as they came."""

    def __init__(self, front: Front) -> None:
        self.token: Final = front.token()
        self._front = front
        self._come: deque[Raw] = deque()
        self._news = trio.Event()
        self._room = trio.Event()
        front.told, front.pace = self._told, self._pace

    async def ask(self) -> None:
        """Ask for them, and again when the connection was lost. Raises `GoneError`."""
        while True:
            endpoint = self._front.endpoint
            try:
                await self._front.ask("events", EventsRequest(self.token), Empty)
            except LostError:
                await self._front.reconnect(endpoint)
                event = EventNotification(self.token, RECONNECTED, round(1000 * time.time()))
                self._told("_acpterm/event", Raw(encode(event)))
            except RpcError as error:
                raise gone(self._front, error) from error

    async def next(self) -> Raw:
        """Wait for an event."""
        while not self._come:
            self._news = trio.Event()
            await self._news.wait()
        self._room.set()
        return self._come.popleft()

    def _told(self, method: str, params: Raw) -> None:
        if method == "_acpterm/event":
            self._come.append(params.copy())
            self._news.set()

    async def _pace(self) -> None:
        while len(self._come) >= _AHEAD:
            self._room = trio.Event()
            await self._room.wait()
