"""The host: connections, sessions, method handlers, listeners, and what supervises them."""

from acpterm.host.activation import ActivationError, handed_listeners, notify, path_of
from acpterm.host.asker import Asker
from acpterm.host.daemon import Sockets, serve, serve_stdio
from acpterm.host.host import Host, open_host
from acpterm.host.listener import ListenError, UnixListener

__all__ = [
    "ActivationError",
    "Asker",
    "Host",
    "ListenError",
    "Sockets",
    "UnixListener",
    "handed_listeners",
    "notify",
    "open_host",
    "path_of",
    "serve",
    "serve_stdio",
]
