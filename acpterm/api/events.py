"""The events of a daemon, as an iterator.

The reader of the connection puts events into a queue of limited length, and never waits for the
task that iterates, since that task may await other requests between two events. If the queue is
full, the oldest event is dropped; `lost` of the next event is the number of dropped events.
"""

import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
from msgspec import Raw, ValidationError, structs
from msgspec.json import decode

from acpterm.acp.user_streams import EventNotification
from acpterm.api.errors import request_error
from acpterm.jsonrpc import RpcError
from acpterm.link.endpoint import Endpoint
from acpterm.link.session import Response

_QUEUED_MAX: Final = 1000
RECONNECTED: Final = "reconnected"
"""The name of an event that follows when the daemon's worker was replaced.

Events may be missing before this event.
"""


class EventStream(AsyncIterator[EventNotification]):
    """Iterates over the events that the daemon sends after `start` was called.

    `token` identifies the stream in the request and its notifications. The iteration raises
    `RequestError` if the daemon refuses the request, and `ClosedError` when the connection has
    ended.
    """

    def __init__(self, endpoint: Endpoint, token: str) -> None:
        self.token: Final = token
        self._endpoint = endpoint
        self._id: int | None = None
        self._answer: Response | None = None
        self._queue: deque[EventNotification] = deque()
        self._lost = 0
        self._changed = anyio.Event()

    def start(self, params: Any) -> None:
        """Queue the request ``_acpterm/events``, without waiting for the response.

        `params` must contain the `token`. Raises `ClosedError` if the connection is closed.
        """
        self._id = self._endpoint.call("_acpterm/events", params, self._end)
        self._check()

    def close(self) -> None:
        """Cancel the request for events."""
        if self._id is not None:
            self._endpoint.cancel(self._id)

    def _end(self, answer: Response) -> None:
        self._answer = answer
        self._changed.set()

    def _check(self) -> None:
        if isinstance(self._answer, RpcError):
            raise request_error(self._endpoint, self._answer)

    def put(self, params: Raw) -> None:
        """Append the event of a notification with these params; ignore an unknown event."""
        try:
            self._append(decode(params, type=EventNotification))
        except ValidationError:
            return  # an event of a newer daemon

    def reconnected(self) -> None:
        """Append an event that says that the daemon's worker was replaced."""
        self._append(EventNotification(self.token, RECONNECTED, round(1000 * time.time())))

    def _append(self, event: EventNotification) -> None:
        self._queue.append(event)
        if len(self._queue) > _QUEUED_MAX:
            self._lost += 1 + self._queue.popleft().lost
        self._changed.set()

    async def __anext__(self) -> EventNotification:
        """Wait for the next event, and return it."""
        while not self._queue:
            if self._answer is not None:
                self._check()
                raise StopAsyncIteration
            self._changed = anyio.Event()
            await self._changed.wait()
        event = self._queue.popleft()
        if self._lost:
            event = structs.replace(event, lost=event.lost + self._lost)
            self._lost = 0
        return event
