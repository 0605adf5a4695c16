"""The worker's end of its socket to the keeper: send, queue and receive messages, on trio.

Sending never waits: a message that does not fit into the socket's buffer is queued, with duplicates
of its descriptors, and `flush_forever` sends it. Only one task at a time may receive messages.

The connection is *lost* once the keeper has closed its end (usually because it has died), or once a
message of the keeper cannot be received.
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
# A message that fails with one of these errors is sent again later: too many descriptors are in
# flight, or no descriptor is free for the file of a long message.
_RETRIED: Final = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.EMFILE, errno.ENFILE)


class KeeperSocket:
    """The worker's end of its socket to the keeper. Owns the socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.set_inheritable(False)
        self._sock: Final = sock
        self._queue: Final[deque[tuple[bytes, list[int]]]] = deque()
        self._changed: Final = trio.lowlevel.ParkingLot()
        # Whether the socket refused the last message although its buffer has room.
        self._is_refused = False
        self.lost: str | None = None  # why the keeper was lost

    def send(self, kind: str, *fields: object, fds: Sequence[int] = ()) -> None:
        """Send or queue a message, or drop it if the connection is lost. The caller keeps `fds`.

        Raises `OSError` (EMFILE) if it has to be queued and `fds` cannot be duplicated.
        """
        data = protocol.encode(kind, *fields)
        if self.lost is not None or (not self._queue and self._try(data, fds)):
            return
        self._queue.append((data, _duplicates(fds)))
        self._changed.unpark_all()

    @property
    def is_flushed(self) -> bool:
        return not self._queue or self.lost is not None

    async def flushed(self) -> None:
        while not self.is_flushed:
            await self._changed.park()

    async def flush_forever(self) -> None:
        while True:
            while self._queue:
                if self._try(*self._queue[0]):
                    _, fds = self._queue.popleft()
                    _close(fds)
                else:
                    # A socket that refuses a message although it is writable would make this loop
                    # spin, so wait a little in that case.
                    await trio.lowlevel.wait_writable(self._sock)
                    await trio.sleep(_RETRY_S if self._is_refused else 0)
            self._changed.unpark_all()
            await self._changed.park()

    def close(self) -> None:
        self._sock.close()
        while self._queue:
            _close(self._queue.popleft()[1])

    async def receive_until(
        self, done: Callable[[], bool], dispatch: Callable[[protocol.Message], None]
    ) -> None:
        """Pass each message to `dispatch` until `done()`; close descriptors that it has not taken.

        Raises `KeeperLostError`.
        """
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
                    raise self._lose(f"the keeper cannot be understood: {error}") from error
                if message is None:
                    raise self._lose("the keeper closed the connection: its process is gone")
                try:
                    dispatch(message)
                finally:
                    message.close()
            await trio.lowlevel.checkpoint()

    def _lose(self, reason: str) -> KeeperLostError:
        self.lost = reason
        self._changed.unpark_all()
        return KeeperLostError(reason)

    def _try(self, data: bytes, fds: Sequence[int]) -> bool:
        """Try to send a message; return False if it has to be sent again later."""
        self._is_refused = False
        try:
            protocol.send(self._sock, data, fds)
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return True  # the receiving task reports the loss, after all received messages
        except OSError as error:
            if error.errno not in _RETRIED:
                raise
            self._is_refused = True
            return False
        return True


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
