"""The keeper's end of its socket to one worker. Queues messages while the socket's buffer is full.

The queue stores no descriptors of a message, but a function that returns them. The function is
called when the message is sent, so the queue needs no duplicates of descriptors. If the terminal or
entry that the message describes no longer exists, the function returns None, and the message is
dropped.
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

    # Returns None if the terminal or entry no longer exists: the message is then dropped.
    Descriptors: TypeAlias = Callable[[], Sequence[int] | None]

_MESSAGES_PER_TURN = 32
_RETRY_S = 0.02


class Link:
    """The keeper's end of its socket to one worker; `lost` is called once, with the reason."""

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
        """Send or queue a message with the descriptors that `fds` then returns; None drops it."""
        if self.open:
            self._queue.append((protocol.encode(kind, *fields), fds))
            if len(self._queue) == 1:
                self._flush()

    def close(self) -> None:
        """Close the socket without calling `lost`. Idempotent."""
        if self.open:
            self.open = False
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()
            self._queue.clear()

    def drain(self) -> None:
        """Handle all messages that have arrived."""
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
        # `Loop.call` logs an exception of the handler, so that the following messages are handled.
        self._loop.call(lambda: self._receive(message))
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
                    # Reading continues: the worker may have sent messages before it died.
                    self._queue.clear()
                    return
                except OSError as error:
                    self._wait(blocked=isinstance(error, BlockingIOError))
                    return
            self._queue.popleft()

    def _wait(self, *, blocked: bool) -> None:
        """Try again when the socket is writable (`blocked`), or a little later."""
        if blocked:
            try:
                self._loop.add_writer(self._sock.fileno(), self._flush)
            except OSError:
                blocked = False
        if not self._retrying:
            # The timer is also needed because a socket can refuse a message although it is reported
            # as writable: too many descriptors are in flight, or the descriptor table is full.
            self._retrying = True
            self._loop.call_later(_RETRY_S if not blocked else 1.0, self._flush)
