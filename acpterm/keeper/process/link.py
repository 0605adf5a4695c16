"""The keeper's connection to one worker: what it sends is queued while there is no room.

A queued message names its descriptors by what owns them, and they are looked up when it is sent: a
terminal that was forgotten meanwhile is then left out, and nothing is duplicated for the queue.
"""

from __future__ import annotations

import collections
import os

from acpterm.keeper import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from acpterm.keeper.process.loop import Loop

    # None: what the message is about is gone, and the message goes with it.
    Descriptors: TypeAlias = Callable[[], Sequence[int] | None]

_MESSAGES_PER_TURN = 32
_RETRY_S = 0.02


class Link:
    """One connection. `receive` is called with each message, `lost` once it is at its end."""

    def __init__(
        self,
        loop: Loop,
        sock: _socket.socket,
        receive: Callable[[protocol.Message], None],
        lost: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._receive = receive
        self._lost = lost
        self._queue: collections.deque[tuple[bytes, Descriptors | None]] = collections.deque()
        self._retrying = False
        self.open = True
        sock.setblocking(False)
        os.set_inheritable(sock.fileno(), False)
        loop.add_reader(sock.fileno(), self._readable)

    def send(self, kind: str, *fields: object, fds: Descriptors | None = None) -> None:
        """Send a message, now or when there is room; nowhere once the connection is lost."""
        if self.open:
            self._queue.append((protocol.encode(kind, *fields), fds))
            if len(self._queue) == 1:
                self._flush()

    def close(self) -> None:
        """Close the connection, without a call of `lost`. Can be repeated."""
        if self.open:
            self.open = False
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()
            self._queue.clear()

    def drain(self) -> None:
        """Receive all that there is, now."""
        while self.open and self._receive_one():
            pass

    def _readable(self) -> None:
        for _ in range(_MESSAGES_PER_TURN):
            if not self.open or not self._receive_one():
                return

    def _receive_one(self) -> bool:
        try:
            message = protocol.receive(self._sock)
        except BlockingIOError:
            return False
        except (protocol.ProtocolError, OSError) as error:
            self.close()
            self._lost(str(error))
            return False
        if message is None:
            self.close()
            self._lost("")
            return False
        try:
            self._receive(message)
        finally:
            message.close()
        return True

    def _flush(self) -> None:
        self._retrying = False
        while self.open and self._queue:
            data, owner = self._queue[0]
            fds = () if owner is None else owner()
            if fds is not None:
                try:
                    protocol.send(self._sock, data, fds)
                except BrokenPipeError:
                    # What the worker sent before it died is still to be read; then comes the end.
                    self._queue.clear()
                    return
                except OSError as error:
                    self._wait(blocked=isinstance(error, BlockingIOError))
                    return
            self._queue.popleft()

    def _wait(self, *, blocked: bool) -> None:
        """Flush again when there is room, or in a moment where that cannot be waited for."""
        if blocked:
            try:
                self._loop.add_writer(self._sock.fileno(), self._flush)
            except OSError:
                blocked = False
        if not self._retrying:
            # Also where the socket counts as writable and yet refuses: too many descriptors are
            # under way, or the table of open files is full.
            self._retrying = True
            self._loop.call_later(_RETRY_S if not blocked else 1.0, self._flush)
