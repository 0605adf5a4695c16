"""The process at the other end of a Unix socket.

The kernel records the pid of the process that connects. That process may have passed the connection
on to a child and ended, and another process may have got its pid. So a decision based on the pid is
valid only if the process is still running after the decision.
"""

import errno
import os
import select
import socket
from typing import TYPE_CHECKING, Final, Self

import trio

from acpterm.pty import processes
from acpterm.runtime.descriptors import reserve
from acpterm.runtime.unix_socket import peer_of

if TYPE_CHECKING:
    from acpterm.pty.linux import ProcStat

# A pidfd of the process that connected (unix(7), Linux 6.5).
_SO_PEERPIDFD: Final = 77


class PeerProcess:
    """The process that connected a stream, by its pidfd or else its start time."""

    # The constructor raises `OSError` if no descriptor is left, not even a reserved one.

    def __init__(self, stream: trio.SocketStream) -> None:
        self.pid: Final = peer_of(stream.socket).pid or 0  # 0 if the process cannot be seen
        self._pidfd = -1
        self._is_gone = False
        self.identity: ProcStat | None = None
        """The pid and start time; None if the process has ended or cannot be seen."""
        if not self.pid:
            return
        try:
            self._pidfd = reserve.borrow(
                lambda: stream.socket.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
            )
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            self._is_gone = error.errno == errno.ESRCH
        try:
            found = reserve.borrow(lambda: processes.identity(self.pid))
            is_visible = found is not None and not found.zombie and not self.has_ended()
        except BaseException:
            # Python does not call `__exit__` if the constructor raises.
            self._close()
            raise
        self.identity = found if is_visible else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def has_ended(self) -> bool:
        """Return whether the process is known to have ended."""
        if self._is_gone:
            return True
        if self._pidfd >= 0:
            exited = select.poll()
            exited.register(self._pidfd, select.POLLIN)
            return bool(exited.poll(0))
        if self.identity is None:
            return False
        found = reserve.borrow(lambda: processes.identity(self.pid))
        return found is None or found.zombie or found.started != self.identity.started
