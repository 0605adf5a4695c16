"""Being a service of systemd: the sockets it hands over, and telling it how things stand.

Implements sd_listen_fds(3) and sd_notify(3): `LISTEN_FDS` descriptors from 3 on, if `LISTEN_PID`
is this process; datagrams to the socket that `NOTIFY_SOCKET` names, `@` being the abstract space.
Where the variables are not set there is nothing to do.
"""

import contextlib
import os
import socket
from collections.abc import Mapping

FIRST = 3


class ActivationError(Exception):
    """What was handed over cannot be used; the message says why."""


def handed_sockets(environ: Mapping[str, str]) -> list[socket.socket]:
    """Take the listening Unix sockets that were handed to this process, if any.

    Raises `ActivationError` for a descriptor that is no listening stream Unix socket.
    """
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = environ.get("LISTEN_FDS", "0")
    if not (count.isascii() and count.isdigit()):
        raise ActivationError(f"LISTEN_FDS is {count!r}, and should be a number")
    return [_listening(fd) for fd in range(FIRST, FIRST + int(count))]


def _listening(fd: int) -> socket.socket:
    wrong = f"descriptor {fd}, handed over by LISTEN_FDS, is no listening Unix stream socket"
    try:
        os.set_inheritable(fd, False)
        sock = socket.socket(fileno=fd)
        listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ActivationError(f"{wrong}: {error.strerror}") from error
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM or not listens:
        raise ActivationError(wrong)
    return sock


def path_of(sock: socket.socket) -> str | None:
    """Give the path that a socket is bound to; None if it has none, but a name or nothing."""
    name = sock.getsockname()
    return name if isinstance(name, str) and os.path.isabs(name) else None


def notify(environ: Mapping[str, str], state: str) -> None:
    """Tell the service manager a state, such as `READY=1`. Never raises: nobody has to listen."""
    path = environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = f"\0{path[1:]}" if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(state.encode(), address)
