"""What a connection calls: methods, dispatch tables, and the context that handlers get."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import trio

from acpterm.acp.base import Wire
from acpterm.config import Settings
from acpterm.jsonrpc import encode_notification
from acpterm.runtime.send_queue import SendQueue


class Method(NamedTuple):
    """One method. Its handler returns the result, or a coroutine if it has to wait."""

    params: type[Wire]
    handle: Callable[..., Any]
    takes_id: bool = False
    """Whether the handler gets the request's id as its last argument."""
    acts_first: bool = False
    """Whether the handler acts before it waits. It is not called if no more requests may wait."""
    result_at_once: Wire | None = None
    """The result if no more requests may wait: the handler has begun to act, and what it would wait
    for is left out. So a client with too many requests can still end what they wait for."""


class MethodTable(NamedTuple):
    """The methods of one kind of peer."""

    requests: Mapping[str, Method]
    notifications: Mapping[str, Method]


class Sender:
    """Sends notifications to one client, whose send queue changes when the client reconnects.

    Without a send queue nothing is sent, and `drain` returns at once.
    """

    def __init__(self) -> None:
        self._queue: SendQueue | None = None

    def connect(self, queue: SendQueue) -> None:
        """Send to `queue` from now on."""
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
        """Send a notification."""
        if self._queue is not None:
            self._queue.put(encode_notification(method, params))


class ConnectionContext(Protocol):
    """The state of one connection's peer, which method handlers get."""

    @property
    def settings(self) -> Settings:
        """The host's settings."""

    @property
    def sender(self) -> Sender:
        """Sends notifications to the peer."""

    def flush_state(self) -> None:
        """Store changed records: a response that may depend on them is about to be sent."""

    def close(self) -> None:
        """Release what the peer holds, as it has disconnected. Can be repeated."""
