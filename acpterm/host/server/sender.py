"""What a connection's client is sent besides answers, over whichever stream serves it now."""

import trio

from acpterm.jsonrpc import encode_notification
from acpterm.runtime.send_queue import SendQueue


class Sender:
    """Sends to one client. Whose outbox that goes into changes when the client connects again.

    Without one nothing is sent, and there is always room.
    """

    def __init__(self) -> None:
        self._queue: SendQueue | None = None

    def connect(self, outbox: SendQueue) -> None:
        """Send into `outbox` from now on."""
        self._queue = outbox

    def disconnect(self, outbox: SendQueue) -> None:
        """Send into `outbox` no more; does nothing if another has taken its place."""
        if self._queue is outbox:
            self._queue = None

    async def drain(self) -> None:
        """Wait until the client has read enough for a large message to be made."""
        if self._queue is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._queue.drain()

    def notify(self, method: str, params: object) -> None:
        """Send a notification."""
        if self._queue is not None:
            self._queue.put(encode_notification(method, params))
