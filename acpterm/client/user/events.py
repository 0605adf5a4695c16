"""Subscription to the daemon's events, and a list of terminals that each event refreshes.

A command that follows events ends on Ctrl-C with status 0; on another signal with the status of a
program that the signal killed; or with status 0 once stdout has no reader, as in a pipe to `head`.
"""

import math
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio
from msgspec import Raw, ValidationError
from msgspec.json import decode, encode

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import ListRequest, ListResponse, TerminalInfo
from acpterm.acp.user_streams import EventNotification, EventsRequest
from acpterm.client.errors import LostError
from acpterm.client.user.client import UserClient
from acpterm.client.user.event_format import RECONNECTED
from acpterm.client.user.output.stdout import while_read
from acpterm.jsonrpc import REQUEST_CANCELLED, RpcError

_SIGNALS: Final = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
# Received events that may wait to be handled; above that, no more are read.
_QUEUE_MAX: Final = 64
# Seconds between two requests, so that a burst of events causes one refresh.
_PAUSE_S: Final = 0.1


class GoneError(Exception):
    """The daemon has ended during a subscription."""


def gone(client: UserClient, error: RpcError) -> GoneError:
    """Return the error for a request that failed."""
    # This client cancels no request that it waits for; the daemon does when it ends.
    ends = error.code == REQUEST_CANCELLED
    return GoneError(f"{client.endpoint.name} is gone" if ends else error.message)


async def until_ended(work: Callable[[], Awaitable[object]]) -> int:
    """Run `work` until it is done, a signal arrives or stdout has no reader; return the status."""
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


async def follow(
    client: UserClient, take: Callable[[EventNotification, Raw], Awaitable[object]]
) -> None:
    """Await `take` with each event, decoded and as received, until cancelled.

    When the daemon's worker was replaced, events may be missing; an event `RECONNECTED` reports it.
    While `take` is slow, no more than `_QUEUE_MAX` events are read ahead; the daemon counts the
    events that it drops meanwhile. Raises `GoneError` when the daemon ends.
    """
    events = _Events(client)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.subscribe)
        while True:
            params = await events.next()
            # An event that cannot be decoded is of a newer daemon, and cannot be shown.
            with suppress(ValidationError):
                event = decode(params, type=EventNotification)
                if event.token == events.token:
                    await take(event, params)


class _Events:
    """The queue of received events."""

    def __init__(self, client: UserClient) -> None:
        self.token: Final = client.token()
        self._client = client
        self._queue: deque[Raw] = deque()
        self._has_events = trio.Event()
        self._has_room = trio.Event()
        client.on_notification, client.throttle = self._receive, self._throttle

    async def subscribe(self) -> None:
        """Subscribe, and again whenever the connection was lost. Raises `GoneError`."""
        while True:
            endpoint = self._client.endpoint
            try:
                await self._client.call("events", EventsRequest(self.token), Empty)
            except LostError:
                await self._client.reconnect(endpoint)
                event = EventNotification(self.token, RECONNECTED, round(1000 * time.time()))
                self._receive("_acpterm/event", Raw(encode(event)))
            except RpcError as error:
                raise gone(self._client, error) from error

    async def next(self) -> Raw:
        """Remove and return the oldest event; wait if there is none."""
        while not self._queue:
            self._has_events = trio.Event()
            await self._has_events.wait()
        self._has_room.set()
        return self._queue.popleft()

    def _receive(self, method: str, params: Raw) -> None:
        if method == "_acpterm/event":
            self._queue.append(params.copy())
            self._has_events.set()

    async def _throttle(self) -> None:
        while len(self._queue) >= _QUEUE_MAX:
            self._has_room = trio.Event()
            await self._has_room.wait()


async def refresh(
    client: UserClient,
    show: Callable[[list[TerminalInfo]], Awaitable[object]],
    *,
    everything: bool,
    every: float = math.inf,
    again: Callable[[], trio.Event] = trio.Event,
) -> None:
    """Call `show` with the terminals now, after each event, and every `every` seconds.

    `again` returns a new `trio.Event` before each wait; setting that event also refreshes the list.
    Runs until cancelled. Raises `GoneError` when the daemon ends.
    """
    happened = again()
    request = ListRequest(all=everything)

    async def note(event: EventNotification, params: Raw) -> None:
        del event, params
        happened.set()
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, client, note)
        while True:
            try:
                answer = await client.call("terminal/list", request, ListResponse)
            except RpcError as error:
                raise gone(client, error) from error
            await show(answer.terminals)
            await trio.sleep(_PAUSE_S)
            with trio.move_on_after(every - _PAUSE_S):
                await happened.wait()
            happened = again()
