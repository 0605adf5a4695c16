"""The host: connections, sessions, method handlers, listeners, and what supervises them."""

from acpterm.host.activation import ActivationError, handed_listeners, notify
from acpterm.host.asker import Asker
from acpterm.host.daemon import Host, open_host, serve, serve_stdio
from acpterm.host.listener import ListenError, UnixListener

__all__ = [
    "ActivationError",
    "Asker",
    "Host",
    "ListenError",
    "UnixListener",
    "handed_listeners",
    "notify",
    "open_host",
    "serve",
    "serve_stdio",
]
