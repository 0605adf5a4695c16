"""Requests of the proxy itself to the editor.

Their ids begin with random text that no agent knows, since the agent's requests have ids of the
agent's choice. All responses to such ids are handled here, late ones too, and none is passed on to
the agent.
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
    """Sends requests to the editor. `send` queues lines for it."""

    def __init__(self, send: Callable[[list[bytes]], None]) -> None:
        self._send = send
        self._prefix: Final = f"acpterm-{secrets.token_hex(_PREFIX_BYTES)}-"
        self._numbers = itertools.count(1)
        self._pending: dict[str, tuple[trio.Event, list[Envelope]]] = {}

    async def request(self, method: str, params: Any) -> Envelope:
        """Send a request, and return the response. If this is cancelled, cancel the request."""
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
        """Handle the response to one of the requests; return False for any other response."""
        if not isinstance(message.id, str) or not message.id.startswith(self._prefix):
            return False
        if pending := self._pending.get(message.id):
            received, responses = pending
            responses.append(message)
            received.set()
        return True
