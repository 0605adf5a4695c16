"""Sends requests of the proxy itself to the editor, for `chat`, and receives their responses.

The ids of these requests begin with random text, so that they differ from the ids that the agent
chooses for its own requests. Every response with such an id is handled here, even if it comes late,
and is not passed on to the agent.
"""

import itertools
import secrets
from collections.abc import Callable
from typing import Any, Final

import trio

from acpterm.client.envelope import Envelope
from acpterm.jsonrpc import encode_notification, encode_request

_PREFIX_BYTES: Final = 16


class EditorRequests:
    """Sends requests to the editor. `send` queues lines for the editor."""

    def __init__(self, send: Callable[[list[bytes]], None]) -> None:
        self._send = send
        self._prefix: Final = f"acpterm-{secrets.token_hex(_PREFIX_BYTES)}-"
        self._numbers = itertools.count(1)
        self._pending: dict[str, tuple[trio.Event, list[Envelope]]] = {}

    async def request(self, method: str, params: Any) -> Envelope:
        """Send a request, wait for the response, and return it, even if it is an error.

        If this is cancelled, send a `$/cancel_request`.
        """
        id_ = f"{self._prefix}{next(self._numbers)}"
        received, responses = self._pending[id_] = trio.Event(), []
        self._send([encode_request(id_, method, params)])
        try:
            await received.wait()
        except trio.Cancelled:
            self._send([encode_notification("$/cancel_request", {"requestId": id_})])
            raise
        finally:
            del self._pending[id_]
        return responses[0]

    def take_response(self, message: Envelope) -> bool:
        """Handle the editor's response to a request of this object, and return True.

        Return False if `message` is the response to any other request.
        """
        if not isinstance(message.id, str) or not message.id.startswith(self._prefix):
            return False
        if pending := self._pending.get(message.id):
            received, responses = pending
            responses.append(message)
            received.set()
        return True
