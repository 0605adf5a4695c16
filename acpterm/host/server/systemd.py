"""Check the file descriptors that systemd hands over.

Implements sd_listen_fds(3): if `LISTEN_PID` is this process, `LISTEN_FDS` is the number of
descriptors, which begin at 3. The keeper takes the descriptors (`keeper.process.inherited_fds`) and
holds the sockets for every worker. This module checks the descriptors before the keeper starts, so
that `acpterm serve` can report an unusable descriptor.
"""

import os
import socket
from collections.abc import Mapping
from typing import Final

from acpterm.keeper.process.notify import LEADER_PREFIX, MASTER_PREFIX, RING_PREFIX, TREES_NAME

FIRST: Final = 3
# Prefixes of the names of descriptors that a keeper has stored with the service manager.
_KEEPER_PREFIXES: Final = (LEADER_PREFIX, MASTER_PREFIX, RING_PREFIX, TREES_NAME)


class ActivationError(Exception):
    """A descriptor that was handed over cannot be used; the message says why."""


def check_handed(environ: Mapping[str, str]) -> int:
    """Return how many descriptors systemd has handed over. Raises `ActivationError`."""
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return 0
    count = environ.get("LISTEN_FDS", "0")
    if not (count.isascii() and count.isdigit()):
        raise ActivationError(f"LISTEN_FDS is {count!r}, and should be a number")
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    for fd in range(FIRST, FIRST + int(count)):
        name = names[fd - FIRST] if fd - FIRST < len(names) else ""
        if not name.startswith(_KEEPER_PREFIXES):
            _check_listening(fd)
    return int(count)


def _check_listening(fd: int) -> None:
    wrong = f"descriptor {fd}, handed over by LISTEN_FDS, is no listening Unix stream socket"
    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            family, kind = sock.family, sock.type
    except OSError as error:
        raise ActivationError(f"{wrong}: {error.strerror}") from error
    if family != socket.AF_UNIX or kind != socket.SOCK_STREAM or not listens:
        raise ActivationError(wrong)


def path_of(sock: socket.socket) -> str | None:
    """Return the path of a Unix socket; None if the socket is abstract or not bound."""
    name = sock.getsockname()
    return name if isinstance(name, str) and os.path.isabs(name) else None
