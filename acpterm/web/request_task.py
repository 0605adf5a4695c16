"""The task of one request: runs the ASGI application, and passes messages between it and hypercorn.

The application ends when it has sent its response. If the peer disconnects before, the application
receives ASGI's disconnect message, its calls of `send` raise an `OSError`, and it ends by itself.
An error in the application is logged, and ends no other request.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import structlog
import trio
from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocketDisconnect

_log = structlog.get_logger("acpterm.web")

App: TypeAlias = Callable[..., Awaitable[None]]
"""An ASGI application."""


class _PeerGoneError(OSError):
    """The application sends to a peer that has disconnected. ASGI requires an `OSError`."""


class Mailbox:
    """The queue of messages to the application.

    It holds at most one message, and the disconnect message after that. `put` waits while the queue
    holds a message. So no more data is read from a peer that sends faster than the application
    receives. `put` never waits with a disconnect message, since the application's own task may put
    that message: the task would wait for itself. Once the application has ended, `put` drops all
    messages.
    """

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._changed: Final = trio.lowlevel.ParkingLot()
        self._is_closed = False
        self.is_disconnected = False
        """Whether the disconnect message was put: nothing can be sent to the peer any more."""

    async def put(self, message: Any) -> None:
        """Queue a message for the application; drop it if the application has ended."""
        if message["type"].endswith(".disconnect"):
            self.is_disconnected = True
        else:
            while self._messages and not self._is_closed:
                await self._changed.park()
        if not self._is_closed:
            self._messages.append(message)
            self._changed.unpark_all()

    async def receive(self) -> Any:
        """Wait for the next message, and return it: ASGI's `receive`."""
        await trio.lowlevel.checkpoint()
        while not self._messages:
            await self._changed.park()
        message = self._messages.popleft()
        self._changed.unpark_all()
        return message

    def close(self) -> None:
        """Drop all messages from now on: the application has ended."""
        self._is_closed = True
        self._messages.clear()
        self._changed.unpark_all()


async def run_app(
    app: App, scope: Any, mailbox: Mailbox, send: Callable[[Any], Awaitable[None]]
) -> None:
    """Run the application for one request, and log the application's errors.

    The application receives messages from `mailbox`. `send` passes the application's messages to
    hypercorn. When the application has ended, this function calls `send(None)`, by which hypercorn
    notices that no more messages follow.
    """

    async def send_to_peer(message: Any) -> None:
        if mailbox.is_disconnected:
            # The protocol would drop the message without a checkpoint: a loop that sends would
            # stop the whole worker.
            await trio.lowlevel.checkpoint()
            raise _PeerGoneError
        await send(message)

    try:
        await app(scope, mailbox.receive, send_to_peer)
    except* (_PeerGoneError, ClientDisconnect, WebSocketDisconnect):
        pass
    except* Exception as errors:  # noqa: BLE001  a bug in a request must not end the others
        _log.error("a request failed", exc_info=errors)
    finally:
        mailbox.close()
    await send(None)
