"""The worker's socket to the keeper, on trio.

Sending never waits: what does not fit is queued, with duplicates of its descriptors, and sent by
`flush_forever`. Receiving is one loop at a time.
"""

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import trio

from acpterm.keeper import protocol
from acpterm.keeper.reports import KeeperLostError

_MESSAGES_PER_TURN: Final = 64
_RETRY_S: Final = 0.02
# Too many descriptors under way, or no descriptor left for the file of a long message.
_RETRIED: Final = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.EMFILE, errno.ENFILE)


class Connection:
    """One connection, which owns the socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.set_inheritable(False)
        self._sock: Final = sock
        self._queue: Final[deque[tuple[bytes, list[int]]]] = deque()
        self._changed = trio.Event()
        self._is_refused = False
        self.lost: str | None = None
        """Why there is no keeper any more."""

    def send(self, kind: str, *fields: object, fds: Sequence[int] = ()) -> None:
        """Send a message, now or later. The descriptors stay the caller's.

        Sends nothing once the keeper is gone: receiving says so. Raises `OSError` (EMFILE) when
        descriptors cannot be queued.
        """
        data = protocol.encode(kind, *fields)
        if self.lost is not None or (not self._queue and self._try(data, fds)):
            return
        self._queue.append((data, _duplicates(fds)))
        self._change()

    @property
    def is_flushed(self) -> bool:
        """Whether all that was sent has left this process, or nothing does any more."""
        return not self._queue or self.lost is not None

    async def flushed(self) -> None:
        """Wait until all that was sent has left this process."""
        while not self.is_flushed:
            await self._changed.wait()

    async def flush_forever(self) -> None:
        """Send what is queued, whenever there is something."""
        while True:
            while self._queue:
                if self._try(*self._queue[0]):
                    _, fds = self._queue.popleft()
                    _close(fds)
                else:
                    # Where the socket is writable and refuses all the same, not at once again.
                    await trio.lowlevel.wait_writable(self._sock)
                    await trio.sleep(_RETRY_S if self._is_refused else 0)
            self._change()
            await self._changed.wait()

    def close(self) -> None:
        """Close the socket and drop what is queued."""
        self._sock.close()
        while self._queue:
            _close(self._queue.popleft()[1])

    async def receive_until(
        self, done: Callable[[], bool], dispatch: Callable[[protocol.Message], None]
    ) -> None:
        """Dispatch messages until `done`. Raises `KeeperLostError`, and `lost` is set."""
        while True:
            for _ in range(_MESSAGES_PER_TURN):
                if done():
                    return
                try:
                    message = protocol.receive(self._sock)
                except BlockingIOError:
                    await trio.lowlevel.wait_readable(self._sock)
                    continue
                except (protocol.ProtocolError, OSError) as error:
                    self.lost = f"the keeper cannot be understood: {error}"
                    raise KeeperLostError(self.lost) from error
                if message is None:
                    self.lost = "the keeper closed the connection: its process is gone"
                    raise KeeperLostError(self.lost)
                try:
                    dispatch(message)
                finally:
                    message.close()
            await trio.lowlevel.checkpoint()

    def _try(self, data: bytes, fds: Sequence[int]) -> bool:
        """Return whether the message is dealt with; if not, `_refused` says in which way."""
        self._is_refused = False
        try:
            protocol.send(self._sock, data, fds)
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return True  # receiving sees the end, and what came before it
        except OSError as error:
            if error.errno not in _RETRIED:
                raise
            self._is_refused = True
            return False
        return True

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _duplicates(fds: Sequence[int]) -> list[int]:
    duplicates: list[int] = []
    try:
        duplicates.extend(os.dup(fd) for fd in fds)
    except OSError:
        _close(duplicates)
        raise
    return duplicates


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
