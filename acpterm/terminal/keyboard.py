"""The input of one terminal: written to the PTY in order, without ever blocking the caller.

To *type* input is to write it to the PTY's master, as a keyboard would. States: *idle*; *behind*,
while input is queued because the program reads more slowly than input arrives. At most
`input_bytes_max` bytes are queued, and a task types them as the PTY gets room.

While the terminal reads whole lines, no more is typed than its line discipline takes, and a line
that is too long for it is refused. The kernel would drop the rest of such a line, and would keep
more input than the line discipline takes in a queue in which a Ctrl-C has no effect. For the same
reason a character that sends a signal drops the input before it that the program has not read, as
the line discipline does when it gets the character.

Input is typed in the order of the calls. When the terminal is closed, or a write to the PTY fails,
the queued input is dropped, and tasks that wait for it get an error. After a failed write, new
input is accepted as before.

A client that has lost its connection may repeat its last write with the same token: what was typed
is not typed again. The ring's header says so to the next worker, too.

The emulator's replies to the program's queries are typed in the same way. `Keyboard.listeners` are
called with the input that the user or the agent has sent, but not with replies. At most
`REPLY_BYTES_MAX` bytes of replies are queued; further replies are dropped.
"""

import contextlib
import termios
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from acpterm.keeper.ring_file import INTERRUPTED
from acpterm.pty.line_discipline import InputMode
from acpterm.pty.master import Master
from acpterm.terminal.shared_ring import InputMark

# Called with each piece of input that the PTY has taken, and whether the terminal echoed the piece.
# Terminals do not echo while a password is entered, for example.
Listener = Callable[[bytes, bool], None]
_ErrorType: TypeAlias = type[Exception]

INPUT_BYTES_MAX: Final = 16 * 1024 * 1024
REPLY_BYTES_MAX: Final = 64 * 1024
# The number of dropped ranges that are remembered. No task still waits for input of older ones.
_FAILURES_MAX: Final = 100
# While the line discipline has no room: the period of the checks, each some 10 µs. The period
# doubles until it is the longest.
_ROOM_POLL_S: Final = 0.001
_ROOM_POLL_MAX_S: Final = 0.1


class InputFullError(Exception):
    """The queue of input is full, because the program does not read. The new input is dropped."""


class InputInterruptedError(Exception):
    """The queued input was dropped, because a character was typed that sends a signal."""


class LineTooLongError(Exception):
    """The terminal reads whole lines, of at most `limit` bytes. The new input is dropped."""

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(length, limit)
        self.length: Final = length
        self.limit: Final = limit


class Keyboard:
    """The input of one terminal; `start` starts the task that types what is queued."""

    def __init__(
        self,
        master: Master,
        mark: InputMark,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        *,
        input_bytes_max: int = INPUT_BYTES_MAX,
    ) -> None:
        self._master = master
        self._mark = mark
        self._start = start
        self._input_bytes_max = input_bytes_max
        self._rest = bytearray()
        # The lengths of the unfinished line, without and with the queued input.
        self._line = self._queued_line = 0
        # How many bytes the line discipline takes at least, in line mode.
        self._room = 0
        # The time of an earlier check without room, and the number of unread bytes; None since the
        # last input was typed.
        self._checked: tuple[float, int] | None = None
        self._is_typing = False
        # The number of bytes typed or dropped so far, and the ranges of the dropped bytes: pairs of
        # positions in the input, counted in the same way, and what `wait` raises for the range.
        self._passed = 0
        # The size of the last write with a token, and where it ends.
        self._write_size = self._write_end = 0
        # How many bytes of an earlier worker's last write were lost with that worker.
        self._lost = 0 if mark.left == INTERRUPTED else mark.left
        self._dropped: list[tuple[int, int, _ErrorType]] = []
        if mark.left == INTERRUPTED:
            self._dropped.append((-1, 0, InputInterruptedError))
        # The ranges of the emulator's replies in the queued input.
        self._replies: list[tuple[int, int]] = []
        self._passed_changed = trio.lowlevel.ParkingLot()
        # When the PTY last took input, and the end of a line (`time.monotonic`).
        self.last_typed = 0.0
        self.last_line = 0.0
        #: Called synchronously with typed input. A listener must neither wait nor raise.
        self.listeners: Final[list[Listener]] = []

    def is_repeated(self, token: int) -> bool:
        """Whether this worker's last write with a token has this one."""
        return self._write_end > 0 and token == self._mark.token

    def type(self, data: bytes, token: int = 0) -> int:
        """Type `data`, now or as soon as the PTY has room; return its end, for `wait`.

        Of a repeated write, type only what was lost. Raises `trio.ClosedResourceError`, `OSError`
        if the write fails, `InputFullError`, and `LineTooLongError` if the line discipline would
        drop a part of a line.
        """
        if token and token == self._mark.token:
            if not self._lost:
                return self._write_end
            data = data[-self._lost :]
        if self._master.closed:
            raise trio.ClosedResourceError
        mode = self._master.input_mode
        interrupts = mode.interrupts(data)
        queued, line = (0, 0) if interrupts else (len(self._rest), self._queued_line)
        if queued + len(data) > self._input_bytes_max:
            raise InputFullError
        limit = mode.line_bytes_max
        if limit is not None and (longest := max(mode.line_lengths(line, data))) > limit:
            raise LineTooLongError(longest, limit)
        if interrupts:
            self._master.discard_input()
            self._line, self._room = 0, limit or 0
            self._drop(InputInterruptedError)
        if token:
            self._lost = 0
            self._write_size = len(data)
            self._write_end = self._passed + len(self._rest) + len(data)
            self._mark.begin(token, len(data))
        return self._put(data, mode)

    def reply(self, data: bytes) -> None:
        """Type a reply of the emulator, or drop it."""
        waiting = sum(end - max(begin, self._passed) for begin, end in self._replies)
        if self._master.closed or waiting + len(data) > REPLY_BYTES_MAX:
            return
        begin = self._passed + len(self._rest)
        if self._replies and self._replies[-1][1] == begin:
            self._replies[-1] = self._replies[-1][0], begin + len(data)
        else:
            self._replies.append((begin, begin + len(data)))
        with contextlib.suppress(trio.ClosedResourceError, OSError):
            self._put(data, self._master.input_mode)

    def _put(self, data: bytes, mode: InputMode) -> int:
        idle = not self._rest
        self._rest += data
        self._queued_line = _unfinished(mode, self._queued_line, data)
        typed = self._passed + len(self._rest)
        if idle:
            try:
                self._type_some(mode)
                if self._rest and not self._is_typing:
                    self._start(self._type_rest)
                    self._is_typing = True
            except RuntimeError as error:  # the terminal's nursery has closed
                self._drop()
                raise trio.ClosedResourceError from error
            except BaseException:
                self._drop()
                raise
        return typed

    async def wait(self, typed: int) -> None:
        """Wait until the PTY has taken the input for which `type` returned `typed`.

        If cancelled, the input is typed all the same. Raises `InputInterruptedError` if it was
        dropped for a character that sends a signal, else `trio.ClosedResourceError`.
        """
        while self._passed < typed:
            if self._master.closed:
                raise trio.ClosedResourceError
            await self._passed_changed.park()
        for begin, end, error in self._dropped:
            if begin < typed <= end:
                raise error

    def close(self) -> None:
        """Drop the queued input and refuse new input. Idempotent."""
        self._drop()
        self._start = _refuse

    def _drop(self, error: _ErrorType = trio.ClosedResourceError) -> None:
        if self._passed < self._write_end and error is InputInterruptedError:
            self._mark.left = INTERRUPTED
        if self._rest:
            end = self._passed + len(self._rest)
            self._dropped = [*self._dropped, (self._passed, end, error)][-_FAILURES_MAX:]
            # Count one byte more, so that later input, even if empty, is after the dropped range.
            self._passed = end + 1
            self._rest.clear()
        self._queued_line = self._line
        self._replies.clear()
        self._passed_changed.unpark_all()

    async def _type_rest(self) -> None:
        period = _ROOM_POLL_S
        try:
            while self._rest:
                await self._master.wait_writable()
                if self._type_some(self._master.input_mode):
                    period = _ROOM_POLL_S
                    continue
                # Poll: the system does not notify of room in the line discipline.
                with trio.move_on_after(period):
                    await self._passed_changed.park()
                period = min(_ROOM_POLL_MAX_S, 2 * period)
        except (trio.ClosedResourceError, OSError):
            self._drop()
        finally:
            self._is_typing = False

    def _type_some(self, mode: InputMode) -> int:
        """Type queued input; return how many bytes the terminal has taken."""
        piece = bytes(self._rest[:65536])
        if mode.line_bytes_max is not None:
            piece = self._fitting(piece, mode, mode.line_bytes_max)
            if not piece:
                return 0
        echoed = bool(self.listeners) and self._echoes()
        taken = self._master.write(piece)
        if self._passed < self._write_end:
            # At once: what is typed and not marked is typed again if this worker is killed now.
            left = max(0, self._write_end - self._passed - taken)
            self._mark.left = min(left, self._write_size)
        self._room = 0 if mode.line_bytes_max is None else self._room - taken
        self._checked = None
        self._line = _unfinished(mode, self._line, piece[:taken])
        typed = self._without_replies(piece[:taken])
        del self._rest[:taken]
        self._passed += taken
        self.last_typed = time.monotonic()
        if b"\r" in typed or b"\n" in typed:
            self.last_line = self.last_typed
        self._passed_changed.unpark_all()
        if self.listeners and typed:
            # Check before and after, since the program may turn the echo off at any time.
            echoed = echoed and self._echoes()
            for listener in list(self.listeners):
                listener(typed, echoed)
        return taken

    def _fitting(self, piece: bytes, mode: InputMode, limit: int) -> bytes:
        """Return the beginning of `piece` that the line discipline takes now."""
        if self._room < len(piece):
            unread = self._master.unread
            if not unread:
                # Nothing can be read before the line ends, and the end needs a byte more.
                self._room = max(limit - self._line, mode.line_lengths(0, piece)[0] + 1)
            elif self._is_settled(unread):
                self._room = limit - unread - self._line
        return piece[: max(self._room, 0)]

    def _is_settled(self, unread: int) -> bool:
        """Return whether the kernel has passed all that was typed to the line discipline."""
        # Until then the number of unread bytes grows from one check to the next.
        now = time.monotonic()
        if self._checked is None or unread > self._checked[1]:
            self._checked = now, unread
        return now - self._checked[0] >= _ROOM_POLL_S

    def _without_replies(self, piece: bytes) -> bytes:
        """Return `piece`, which the PTY has just taken, without the emulator's replies."""
        at, end = self._passed, self._passed + len(piece)
        typed = []
        while self._replies and self._replies[0][0] < end:
            begin, stop = self._replies[0]
            typed.append(piece[at - self._passed : max(at, begin) - self._passed])
            at = min(stop, end)
            if stop > end:
                break
            self._replies.pop(0)
        return b"".join([*typed, piece[at - self._passed :]])

    def _echoes(self) -> bool:
        try:
            return self._master.echoes
        except (OSError, termios.error):  # unknown: treat the input as a password
            return False


def _unfinished(mode: InputMode, line: int, data: bytes) -> int:
    """Return the length of the unfinished line after `data`."""
    return 0 if mode.line_bytes_max is None else mode.line_lengths(line, data)[-1]


def _refuse(_: Callable[[], Awaitable[None]]) -> None:
    raise trio.ClosedResourceError
