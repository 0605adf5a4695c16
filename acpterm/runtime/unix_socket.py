"""Unix sockets: the private directory of a socket, and the peer of a connected socket."""

import contextlib
import errno
import os
import socket
import stat
import struct
from typing import Final, NamedTuple, Protocol

# macOS: <sys/un.h>.
_SOL_LOCAL: Final = 0
_LOCAL_PEERCRED: Final = 1
_LOCAL_PEERPID: Final = 2

ALREADY_LISTENS: Final = "already listens"
"""Words in the message of a `ListenError` if another process already listens on the path."""


class ListenError(Exception):
    """No socket can listen on a path. The message says why, and what the user can do."""


def make_private_dir(directory: str) -> None:
    """Create `directory` with mode 0700, and so its missing parents.

    Raises `OSError`; `ListenError` if others may write to it.
    """
    if not os.path.isdir(directory):
        parent = os.path.dirname(directory)
        if parent != directory and not os.path.isdir(parent):
            make_private_dir(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
    found = os.stat(directory)
    if os.path.islink(directory) and os.lstat(directory).st_uid not in (os.geteuid(), 0):
        raise OSError(errno.EPERM, f"{directory} is another user's link")
    # Refused even with the sticky bit, as in /tmp: others could create a FIFO at the log's path.
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        advice = "" if mode & stat.S_ISVTX else f"run chmod 700 {directory}, or "
        raise ListenError(
            f"{directory} can be written to by others (mode {mode:o}), who could put files where "
            f"the socket, its lock and its log are to be: {advice}choose a --socket in a directory "
            "of your own"
        )
    if found.st_uid not in (os.geteuid(), 0):
        raise OSError(errno.EPERM, f"{directory} belongs to uid {found.st_uid}")


class _Socket(Protocol):
    """A connected socket: one of the standard library's, or of trio's."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...


class PeerCredentials(NamedTuple):
    """The user and the process at the other end of a socket."""

    uid: int
    pid: int | None
    """The pid; None or 0 if unknown, such as for a process in another pid namespace."""


def peer_of(sock: _Socket) -> PeerCredentials:
    """Return the user and process at the other end of a connected socket."""
    # unix(7), SO_PEERCRED; on macOS LOCAL_PEERCRED.
    if hasattr(socket, "SO_PEERCRED"):
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
        pid, uid, _ = struct.unpack("iII", found)
        return PeerCredentials(uid, pid)
    # struct xucred: version, uid, …
    found = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)
    _, uid = struct.unpack_from("II", found)
    try:
        found = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, struct.calcsize("i"))
    except OSError:
        return PeerCredentials(uid, None)
    return PeerCredentials(uid, struct.unpack("i", found)[0])
