"""What is typed into one terminal: in order, and without ever holding up who types.

States: *idle*; *behind*, while the program does not read as fast as is typed: then the rest waits
here, at most `MOST` bytes of it, and a task that `type` starts types it bit by bit. What was typed
first comes first, whoever typed it. When the terminal closes or fails to take its input, what is
left is dropped, and whoever waits for that is told; after a failure, what is typed later is typed.

The answers of the emulator to what the program asks its terminal go the same way, but no listener
is told of them: nobody typed them. At most `ANSWERS_MAX` bytes of them wait; the rest is dropped.
"""

import contextlib
import termios
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from acpterm.pty.master import Master

# Called with each piece that the program's terminal has taken, and whether it was shown: not so
# while the terminal's echo is off, as when a password is asked for.
Listener = Callable[[bytes, bool], None]

INPUT_BYTES_MAX: Final = 16 * 1024 * 1024
REPLY_BYTES_MAX: Final = 64 * 1024
# Of failures: nobody waits for input that was dropped so many failures ago.
_FAILURES_MAX: Final = 100


class InputFullError(Exception):
    """The program does not read what was typed before; nothing of this was typed."""


class Keyboard:
    """The input of the terminal of `master`; `start` starts a task beside its reader."""

    def __init__(
        self, master: Master, start: Callable[[Callable[[], Awaitable[None]]], None]
    ) -> None:
        self._master = master
        self._start = start
        self._rest = bytearray()
        # Bytes typed or dropped so far, and from where to where those were that were dropped.
        self._passed = 0
        self._dropped: deque[tuple[int, int]] = deque(maxlen=_FAILURES_MAX)
        # From where to where answers of the emulator are, of all that is typed.
        self._replies: deque[tuple[int, int]] = deque()
        self._has_input = trio.lowlevel.ParkingLot()
        #: Who is told of what is typed, at once; a listener may neither wait nor fail.
        self.listeners: Final[list[Listener]] = []

    def type(self, data: bytes) -> int:
        """Type `data`, now or as soon as there is room: what `wait` is to wait for.

        Raises `trio.ClosedResourceError` when the terminal is closed, `OSError` when it fails,
        `InputFullError` when too much is waiting already.
        """
        if self._master.closed:
            raise trio.ClosedResourceError
        if len(self._rest) + len(data) > INPUT_BYTES_MAX:
            raise InputFullError
        return self._put(data)

    def reply(self, data: bytes) -> None:
        """Type an answer of the emulator, or drop it: too many wait, or the terminal fails."""
        waiting = sum(end - max(begin, self._passed) for begin, end in self._replies)
        if self._master.closed or waiting + len(data) > REPLY_BYTES_MAX:
            return
        begin = self._passed + len(self._rest)
        if self._replies and self._replies[-1][1] == begin:
            self._replies[-1] = self._replies[-1][0], begin + len(data)
        else:
            self._replies.append((begin, begin + len(data)))
        with contextlib.suppress(trio.ClosedResourceError, OSError):
            self._put(data)

    def _put(self, data: bytes) -> int:
        idle = not self._rest
        self._rest += data
        typed = self._passed + len(self._rest)
        if idle:
            try:
                self._type_some()
                if self._rest:
                    self._start(self._type_rest)
            except RuntimeError as error:  # the nursery of whatever runs it has closed
                self._drop()
                raise trio.ClosedResourceError from error
            except BaseException:
                self._drop()
                raise
        return typed

    async def wait(self, typed: int) -> None:
        """Wait until the terminal has taken all up to there. Cancelled, it is still typed.

        Raises `trio.ClosedResourceError` when it was dropped.
        """
        while self._passed < typed:
            if self._master.closed:
                raise trio.ClosedResourceError
            await self._has_input.park()
        if any(begin < typed <= end for begin, end in self._dropped):
            raise trio.ClosedResourceError

    def close(self) -> None:
        """Wake those that wait: the terminal is closed. Can be repeated."""
        self._drop()
        self._start = _refuse

    def _drop(self) -> None:
        if self._rest:
            end = self._passed + len(self._rest)
            self._dropped.append((self._passed, end))
            # One more: what is typed next, even if it is nothing, is not among what was dropped.
            self._passed = end + 1
            self._rest.clear()
        self._replies.clear()
        self._has_input.unpark_all()

    async def _type_rest(self) -> None:
        try:
            while self._rest:
                await self._master.wait_writable()
                self._type_some()
        except (trio.ClosedResourceError, OSError):
            self._drop()

    def _type_some(self) -> None:
        piece = bytes(self._rest[:65536])
        shown = bool(self.listeners) and self._echoes()
        taken = self._master.write(piece)
        typed = self._typed(piece[:taken])
        del self._rest[:taken]
        self._passed += taken
        self._has_input.unpark_all()
        if self.listeners and typed:
            # Before and after: the program may turn the echo off at any time.
            shown = shown and self._echoes()
            for listener in list(self.listeners):
                listener(typed, shown)

    def _typed(self, piece: bytes) -> bytes:
        """Return what was typed of what comes next, which is taken: all but answers."""
        at, end = self._passed, self._passed + len(piece)
        typed = []
        while self._replies and self._replies[0][0] < end:
            begin, stop = self._replies[0]
            typed.append(piece[at - self._passed : max(at, begin) - self._passed])
            at = min(stop, end)
            if stop > end:
                break
            self._replies.popleft()
        return b"".join([*typed, piece[at - self._passed :]])

    def _echoes(self) -> bool:
        try:
            return self._master.echoes
        except (OSError, termios.error):  # what cannot be known is not shown
            return False


def _refuse(_: Callable[[], Awaitable[None]]) -> None:
    raise trio.ClosedResourceError
