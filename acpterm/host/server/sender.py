"""What a connection's client is sent besides answers, over whichever stream serves it now."""

import trio

from acpterm.jsonrpc import encode_notification
from acpterm.runtime.send_queue import Outbox


class Sender:
    """Sends to one client. Whose outbox that goes into changes when the client connects again.

    Without one nothing is sent, and there is always room.
    """

    def __init__(self) -> None:
        self._outbox: Outbox | None = None

    def connect(self, outbox: Outbox) -> None:
        """Send into `outbox` from now on."""
        self._outbox = outbox

    def disconnect(self, outbox: Outbox) -> None:
        """Send into `outbox` no more; does nothing if another has taken its place."""
        if self._outbox is outbox:
            self._outbox = None

    async def room(self) -> None:
        """Wait until the client has read enough for a large message to be made."""
        if self._outbox is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._outbox.room()

    def notify(self, method: str, params: object) -> None:
        """Send a notification."""
        if self._outbox is not None:
            self._outbox.put(encode_notification(method, params))
