"""The settings of the HTTP server: the address that it listens on, and who may reach it.

And the addresses from which acpterm downloads.

By default the server is off. An address that is not a loopback address needs `http_remote`, and
either TLS files, or a proxy with TLS whose origin is in `http_origins`. Without TLS, others on the
network could read everything that a terminal shows, and every key that is typed.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

    from acpterm.config.settings import Settings


DEFAULT_PORTS: Final = {"http": 80, "https": 443}
"""The default port of each scheme, which an origin omits."""


class HttpAddress(NamedTuple):
    """An IP address and a port to listen on; with port 0 the system chooses a port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can connect."""
        return _ip_address(self.host).is_loopback

    @property
    def is_unspecified(self) -> bool:
        """Whether this means all addresses of this machine, as 0.0.0.0 does."""
        return _ip_address(self.host).is_unspecified

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> HttpAddress:
    """Parse `127.0.0.1:8080`, `localhost:0` or `[::1]:8080`. Raises `ValueError`."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if host == "localhost":
        host = "127.0.0.1"
    try:
        address = _ip_address(host)
    except ValueError:
        address = None
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not colon or address is None or not is_port or (address.version == 6) != bracketed:
        raise ValueError(
            "is not ADDRESS:PORT with an IP address, such as 127.0.0.1:8080 or [::1]:8080"
        )
    return HttpAddress(str(address), int(port))


def is_address(text: str) -> bool:
    """Return whether a setting is an address, not the path of a file."""
    return "://" in text


def check_address(address: str) -> None:
    """Raise `ValueError` if others on the network could change what is at an address."""
    from urllib.parse import urlsplit  # noqa: PLC0415  slow to import

    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme == "https" and host:
        return
    try:
        is_here = host == "localhost" or _ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if parts.scheme != "http" or not is_here:
        raise ValueError("is neither an https:// address nor an http:// address of this machine")


def check_origins(origins: list[str]) -> None:
    """Raise `ValueError` if one of `origins` differs from what a browser sends as `Origin`."""
    # The scheme and the host in small letters, and no port if it is the default.
    from urllib.parse import urlsplit  # noqa: PLC0415  slow to import, and commands need no server

    for origin in origins:
        try:
            parts = urlsplit(origin)
            rest = parts.path or parts.query or parts.fragment or parts.username
            is_valid = parts.scheme in ("http", "https") and parts.hostname and not rest
            is_valid = is_valid and f"{parts.scheme}://{parts.netloc}" == origin
            is_valid = is_valid and parts.netloc == parts.netloc.lower() and "*" not in parts.netloc
            is_valid = is_valid and parts.port not in (0, DEFAULT_PORTS.get(parts.scheme))
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ValueError(
                f"{origin!r} is not an origin: it is a scheme, a host in small letters, and a port "
                "unless that is the scheme's default, such as https://terminals.example.org"
            )


def check_exposure(settings: "Settings", address: HttpAddress) -> None:
    """Raise `ValueError`, which says what to do, if the server must not listen on `address`."""
    # Other machines can reach it only with `http_remote`, and TLS files or the origin of a proxy;
    # all addresses need `http_origins` too. The TLS files must be set together.
    if bool(settings.http_certificate) != bool(settings.http_key):
        raise ValueError("http_certificate and http_key belong together: set both, or neither")
    if address.is_loopback:
        return
    if not settings.http_remote:
        raise ValueError(
            f"{address} can be reached from other machines: listen on 127.0.0.1 and use ssh -L, or "
            "set http_remote"
        )
    if address.is_unspecified and not settings.http_origins:
        raise ValueError(
            f"{address} means all addresses: name those that browsers use in http_origins, such as "
            "https://terminals.example.org"
        )
    has_proxy = any(origin.startswith("https://") for origin in settings.http_origins)
    if not settings.http_certificate and not has_proxy:
        raise ValueError(
            f"{address} can be reached from other machines, and nothing would be encrypted: set "
            "http_certificate and http_key, or name the origin of a proxy with TLS in "
            "http_origins, such as https://terminals.example.org"
        )


def _ip_address(text: str) -> "IPv4Address | IPv6Address":
    import ipaddress  # noqa: PLC0415  slow to import, and commands need no server

    return ipaddress.ip_address(text)
