"""Where the HTTP server listens, and under which hosts and origins browsers may reach it.

A request is refused unless its `Host` and `Origin` are equal to accepted values. So a page of
another site is refused: it sends that site's `Origin`. If the site makes its name resolve to this
machine (DNS rebinding), its page is refused as well: it sends that name as `Host`.
"""

import socket
from typing import Final
from urllib.parse import urlsplit

from acpterm.config import Settings
from acpterm.config.http import DEFAULT_PORTS, HttpAddress

BACKLOG: Final = 128


class HttpEndpoint:
    """The listening socket of the HTTP server, and the hosts and origins that it accepts."""

    def __init__(self, sock: socket.socket, settings: Settings) -> None:
        self.socket: Final = sock
        host, port = sock.getsockname()[:2]
        self.address: Final = HttpAddress(host, port)
        self.is_tls: Final = settings.http_certificate is not None
        scheme = "https" if self.is_tls else "http"
        # No browser connects to the address that means all addresses.
        names = [] if self.address.is_unspecified else [host]
        if self.address.is_loopback:
            names.append("localhost")
        own = [_origin(scheme, HttpAddress(name, port)) for name in names]
        self.origins: Final = frozenset((*own, *settings.http_origins))
        """The values of `Origin` that are accepted."""
        self.hosts: Final = frozenset(urlsplit(origin).netloc for origin in self.origins)
        """The values of `Host` that are accepted."""
        others = [] if self.address.is_loopback else settings.http_origins
        self.origin: Final = [*others, *own][0]
        """The origin of the links that the server creates."""

    @property
    def cookie(self) -> str:
        """The name of the cookie of the user's login.

        It contains the port, since browsers send a cookie to every port of its host.
        """
        return f"acpterm-{self.address.port}"

    @property
    def share_cookie(self) -> str:
        """The name of the cookie of a share's login: a browser can have both cookies."""
        return f"acpterm-share-{self.address.port}"


def bind(address: HttpAddress) -> socket.socket:
    """Return a TCP socket that listens on `address`. Raises `OSError` if the system refuses it."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Otherwise the port could not be bound for a minute after a connection was closed.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(tuple(address))
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _origin(scheme: str, address: HttpAddress) -> str:
    host = str(address)
    if address.port == DEFAULT_PORTS[scheme]:
        host = host.rpartition(":")[0]
    return f"{scheme}://{host}"
