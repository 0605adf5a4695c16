"""Passes each event of the host on to the client of a session's socket that has requested it.

All clients of the sockets share one connection to the host, but each client chooses its tokens for
events, so two clients may choose the same one. Each request for events therefore goes to the host
with a new token, which `EventRoutes.add` creates.
"""

import secrets
from collections.abc import Callable
from typing import Any, Final

from msgspec import Raw

from acpterm.acp.raw_json import members, text
from acpterm.jsonrpc import NotificationReceived

Send = Callable[[str, dict[str, Any]], None]
"""Sends a notification: its method and its params."""

_TOKEN_BYTES: Final = 8


class EventRoutes:
    """The requests for events that are pending on the connection to the host."""

    def __init__(self) -> None:
        self._routes: dict[str, tuple[Raw, Send]] = {}

    def add(self, token: Raw, send: Send) -> str:
        """Return a new token for a client's request for events, which has chosen `token`.

        `send` gets each notification for the new token, with `token` in its params.
        """
        used = secrets.token_hex(_TOKEN_BYTES)
        # Copied, because a Raw value keeps the whole message in memory.
        self._routes[used] = token.copy(), send
        return used

    def remove(self, used: str) -> None:
        """Forget `used`, a token that `add` has returned."""
        self._routes.pop(used, None)

    def on_notification(self, notification: NotificationReceived) -> None:
        """Pass on the host's `notification` if `add` has returned its token."""
        params = members(notification.params)
        if (route := self._routes.get(text(params.get("token")) or "")) is not None:
            token, send = route
            send(notification.method, {**params, "token": token})
