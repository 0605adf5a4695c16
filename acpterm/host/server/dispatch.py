"""The interface between a connection and its handlers.

`server.connection` looks up a `Method` in a `MethodTable`, and calls its handler with the peer's
`ConnectionContext`. Handlers send notifications with a `Sender`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import trio

from acpterm.acp.base import Wire
from acpterm.config import Settings
from acpterm.jsonrpc import encode_notification
from acpterm.runtime.send_queue import SendQueue


class Method(NamedTuple):
    """One method. The handler gets context and params; it returns the result, or a coroutine."""

    params: type[Wire]
    handle: Callable[..., Any]
    takes_id: bool = False
    """Whether the handler gets the request's id as its last argument."""
    acts_first: bool = False
    """Whether the handler has an effect before it returns its coroutine. While a connection has the
    maximum number of pending requests, a request fails if its handler returns a coroutine. A
    handler with this flag is then not called, so that a request that fails has no effect."""
    result_at_once: Wire | None = None
    """The result that is sent, instead of running the handler's coroutine, while a connection has
    the maximum number of pending requests. So the client can still kill or release the terminals
    that the pending requests wait for. With None, the request fails."""


class MethodTable(NamedTuple):
    """The methods that one kind of peer may call, by name: as requests, and as notifications."""

    requests: Mapping[str, Method]
    notifications: Mapping[str, Method]


class Sender:
    """Sends notifications to one peer; drops them while the peer is disconnected."""

    def __init__(self) -> None:
        self._queue: SendQueue | None = None

    def connect(self, queue: SendQueue) -> None:
        self._queue = queue

    def disconnect(self, queue: SendQueue) -> None:
        """Stop sending to `queue`, unless another queue has replaced it."""
        if self._queue is queue:
            self._queue = None

    async def drain(self) -> None:
        """Wait until the send queue is below its high-water mark."""
        if self._queue is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._queue.drain()

    def notify(self, method: str, params: object) -> None:
        """Send a notification: queue it without waiting."""
        if self._queue is not None:
            self._queue.put(encode_notification(method, params))


class ConnectionContext(Protocol):
    """The state of one connection's peer, which each handler gets."""

    @property
    def settings(self) -> Settings:
        """The host's settings."""

    @property
    def sender(self) -> Sender:
        """The object that sends notifications to the peer."""

    def flush_state(self) -> None:
        """Write all changed records to the keeper's store. Called before a response is sent."""

    def close(self) -> None:
        """Release what belongs to the peer, because the peer has disconnected. Idempotent."""
