"""Passes the host's events to the client of a session's socket that has requested them.

All these clients share one connection to the host, so that each request for events gets a token of
ours there.
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
        """Return the token to use on the connection to the host; `send` gets the notifications.

        They have the client's own `token`.
        """
        used = secrets.token_hex(_TOKEN_BYTES)
        # Copied, because a Raw value keeps the whole message in memory.
        self._routes[used] = token.copy(), send
        return used

    def remove(self, used: str) -> None:
        """Remove a token that `add` has returned."""
        self._routes.pop(used, None)

    def on_notification(self, notification: NotificationReceived) -> None:
        """Pass a notification of the host on; ignore those without a token of ours."""
        params = members(notification.params)
        if (route := self._routes.get(text(params.get("token")) or "")) is not None:
            token, send = route
            send(notification.method, {**params, "token": token})
