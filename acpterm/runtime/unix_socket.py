"""Unix sockets: the process at the other end of one."""

import socket
import struct
from typing import Final, NamedTuple, Protocol

# macOS: <sys/un.h>.
_SOL_LOCAL: Final = 0
_LOCAL_PEERCRED: Final = 1
_LOCAL_PEERPID: Final = 2


class _Socket(Protocol):
    """A connected socket: one of the standard library's, or of trio's."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...


class Peer(NamedTuple):
    """The user and the process that connected, or that listens."""

    uid: int
    pid: int | None
    """None, or 0, if this process cannot see the other: it is in another pid namespace."""


def peer_of(sock: _Socket) -> Peer:
    """Return the process at the other end (unix(7), SO_PEERCRED; LOCAL_PEERCRED on macOS)."""
    if hasattr(socket, "SO_PEERCRED"):
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", found)
        return Peer(uid, pid)
    # struct xucred: version, uid, …
    found = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)
    _, uid = struct.unpack_from("Ii", found)
    try:
        found = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, struct.calcsize("i"))
    except OSError:
        return Peer(uid, None)
    return Peer(uid, struct.unpack("i", found)[0])
