"""The input of one terminal: written to the PTY in order, without ever blocking the caller.

To *type* input is to write it to the PTY's master, as a keyboard would. States: *idle*; *behind*,
while input is queued because the program reads more slowly than input arrives. At most
`input_bytes_max` bytes are queued, and a task types them as the PTY gets room.

Input is typed in the order of the calls. When the terminal is closed, or a write to the PTY fails,
the queued input is dropped, and tasks that wait for it get an error. After a failed write, new
input is accepted as before.

The emulator's replies to the program's queries are typed in the same way. `Keyboard.listeners` are
called with the input that the user or the agent has sent, but not with replies. At most
`REPLY_BYTES_MAX` bytes of replies are queued; further replies are dropped.
"""

import contextlib
import termios
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from acpterm.pty.master import Master

# Called with each piece of input that the PTY has taken, and whether the terminal echoed the piece.
# Terminals do not echo while a password is entered, for example.
Listener = Callable[[bytes, bool], None]

INPUT_BYTES_MAX: Final = 16 * 1024 * 1024
REPLY_BYTES_MAX: Final = 64 * 1024
# The number of dropped ranges that are remembered. No task still waits for input of older ones.
_FAILURES_MAX: Final = 100


class InputFullError(Exception):
    """The queue of input is full, because the program does not read. The new input is dropped."""


class Keyboard:
    """The input of one terminal, written to the PTY's `master`.

    When the first input is queued, `start` is called with an async function that types the queue.
    `start` must run that function as a task. `input_bytes_max` is the maximum length of the queue.
    """

    def __init__(
        self,
        master: Master,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        *,
        input_bytes_max: int = INPUT_BYTES_MAX,
    ) -> None:
        self._master = master
        self._start = start
        self._input_bytes_max = input_bytes_max
        self._rest = bytearray()
        # The number of bytes typed or dropped so far, and the ranges of the dropped bytes: pairs of
        # positions in the input, counted in the same way.
        self._passed = 0
        self._dropped: deque[tuple[int, int]] = deque(maxlen=_FAILURES_MAX)
        # The ranges of the emulator's replies in the queued input.
        self._replies: deque[tuple[int, int]] = deque()
        self._passed_changed = trio.lowlevel.ParkingLot()
        self.last_typed = 0.0
        """The `time.monotonic` time at which the PTY last took input; 0 for never."""
        #: Called synchronously with typed input. A listener must neither wait nor raise.
        self.listeners: Final[list[Listener]] = []

    def type(self, data: bytes) -> int:
        """Type `data`, now or as soon as the PTY has room.

        Returns the position of the end of `data` in the input. With this number, `wait` waits until
        the PTY has taken `data`.

        Raises `trio.ClosedResourceError` if the terminal is closed, `OSError` if the write to the
        PTY fails, and `InputFullError` if more than `input_bytes_max` bytes would be queued.
        """
        if self._master.closed:
            raise trio.ClosedResourceError
        if len(self._rest) + len(data) > self._input_bytes_max:
            raise InputFullError
        return self._put(data)

    def reply(self, data: bytes) -> None:
        """Type a reply of the emulator to a query of the program.

        Drops the reply if more than `REPLY_BYTES_MAX` bytes of replies would be queued, if the
        terminal is closed, or if the write to the PTY fails.
        """
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
            except RuntimeError as error:  # the terminal's nursery has closed
                self._drop()
                raise trio.ClosedResourceError from error
            except BaseException:
                self._drop()
                raise
        return typed

    async def wait(self, typed: int) -> None:
        """Wait until the PTY has taken the input for which `type` returned `typed`.

        If the wait is cancelled, the input is typed all the same. Raises
        `trio.ClosedResourceError` if the input is dropped, or if the terminal is closed before the
        PTY has taken the input.
        """
        while self._passed < typed:
            if self._master.closed:
                raise trio.ClosedResourceError
            await self._passed_changed.park()
        if any(begin < typed <= end for begin, end in self._dropped):
            raise trio.ClosedResourceError

    def close(self) -> None:
        """Drop the queued input and refuse new input. Idempotent.

        Pending calls of `wait` raise `trio.ClosedResourceError`.
        """
        self._drop()
        self._start = _refuse

    def _drop(self) -> None:
        if self._rest:
            end = self._passed + len(self._rest)
            self._dropped.append((self._passed, end))
            # Count one byte more, so that later input, even if empty, is after the dropped range.
            self._passed = end + 1
            self._rest.clear()
        self._replies.clear()
        self._passed_changed.unpark_all()

    async def _type_rest(self) -> None:
        try:
            while self._rest:
                await self._master.wait_writable()
                self._type_some()
        except (trio.ClosedResourceError, OSError):
            self._drop()

    def _type_some(self) -> None:
        piece = bytes(self._rest[:65536])
        echoed = bool(self.listeners) and self._echoes()
        taken = self._master.write(piece)
        typed = self._without_replies(piece[:taken])
        del self._rest[:taken]
        self._passed += taken
        self.last_typed = time.monotonic()
        self._passed_changed.unpark_all()
        if self.listeners and typed:
            # Check before and after, since the program may turn the echo off at any time.
            echoed = echoed and self._echoes()
            for listener in list(self.listeners):
                listener(typed, echoed)

    def _without_replies(self, piece: bytes) -> bytes:
        """Return `piece`, the input that the PTY has just taken, without the emulator's replies."""
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
        except (OSError, termios.error):  # unknown: treat the input as a password
            return False


def _refuse(_: Callable[[], Awaitable[None]]) -> None:
    raise trio.ClosedResourceError
