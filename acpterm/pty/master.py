"""The master side of one PTY, as the worker uses it: write input, resize, signal, query.

The keeper reads the output. `Master` owns a duplicate of the keeper's descriptor until `close`. No
method blocks: the descriptor is non-blocking.
"""

import contextlib
import fcntl
import os
import select
import signal
import struct
import termios
from typing import Final

import trio

from acpterm.pty import line_discipline
from acpterm.pty.input_wait import detect
from acpterm.pty.input_wait.detect import StoppedProcess
from acpterm.pty.line_discipline import RAW, InputMode

_RAW_POLL_S: Final = 0.005
_RAW_POLL_MAX_S: Final = 0.25


class Master:
    """The master side of one PTY. Owns the descriptor `fd`; None for a PTY that is already closed.

    With `waits_for_raw`, no input is written until a program has set the raw mode: before a client
    such as `ssh` has set it, the PTY would echo and change input that is meant for the other host.
    """

    def __init__(self, fd: int | None, *, waits_for_raw: bool = False) -> None:
        self.fd = -1 if fd is None else fd
        self._waits_for_raw = waits_for_raw
        if fd is not None:
            os.set_blocking(fd, False)

    @property
    def closed(self) -> bool:
        return self.fd < 0

    def close(self) -> None:
        # The PTY hangs up once the keeper has closed its descriptor as well.
        if self.fd >= 0:
            trio.lowlevel.notify_closing(self.fd)
            fd, self.fd = self.fd, -1
            os.close(fd)

    async def wait_writable(self) -> None:
        """Wait for `wait_raw` and for room. Raises `trio.ClosedResourceError`."""
        if self.closed:
            raise trio.ClosedResourceError
        await self.wait_raw()
        await trio.lowlevel.wait_writable(self.fd)

    async def wait_raw(self) -> None:
        """Wait for the raw mode, if required. Raises `trio.ClosedResourceError`."""
        delay = _RAW_POLL_S
        while not self.takes_input:  # poll: the system does not notify of a change
            await trio.sleep(delay)
            # Poll less and less often: a client may wait in a cluster's queue for hours.
            delay = min(_RAW_POLL_MAX_S, 1.1 * delay)
        if self.closed:
            raise trio.ClosedResourceError

    @property
    def takes_input(self) -> bool:
        """Whether input may be written; also after `close`, so that no caller waits any more."""
        if self.closed:
            return True
        if self._waits_for_raw:
            self._waits_for_raw = bool(termios.tcgetattr(self.fd)[3] & termios.ICANON)
        return not self._waits_for_raw

    def write(self, data: bytes) -> int:
        """Write keyboard input; return how many bytes there was room for. Raises `OSError`."""
        if not self.takes_input:
            return 0
        try:
            return os.write(self.fd, data)
        except BlockingIOError:
            return 0

    @property
    def input_mode(self) -> InputMode:
        """How the terminal reads input; `RAW` if unknown, or if it is yet to be set."""
        with contextlib.suppress(OSError, termios.error):
            if self.fd >= 0 and self.takes_input:
                return line_discipline.input_mode(self.fd)
        return RAW

    @property
    def unread(self) -> int:
        """How many bytes of complete lines the program has not read; 0 if that is unknown."""
        return line_discipline.unread(self.fd)

    def discard_input(self) -> None:
        """Drop the input that was written and that the program has not read."""
        line_discipline.discard_input(self.fd)

    def resize(self, cols: int, rows: int) -> None:
        """Set the size in cells. If it is new, the foreground process group gets SIGWINCH."""
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("4H", rows, cols, 0, 0))

    @property
    def echoes(self) -> bool:
        """Whether the terminal echoes input. Programs turn echo off to prompt for a password."""
        return bool(termios.tcgetattr(self.fd)[3] & termios.ECHO)

    @property
    def reads_lines(self) -> bool:
        """Whether the PTY is in line mode, which programs that edit a line turn off."""
        return not self.closed and bool(termios.tcgetattr(self.fd)[3] & termios.ICANON)

    @property
    def hides_input(self) -> bool:
        """Whether the PTY reads whole lines without echo, as at a prompt for a password."""
        return self.reads_lines and not self.echoes

    def waiting_process(self, quiet: float = 0.0, program: int | None = None) -> int | None:
        return None if self.closed else detect.waiting_process(self.fd, quiet, program)

    def stopped_program(self) -> StoppedProcess | None:
        return None if self.closed else detect.stopped_program(self.fd)

    @property
    def has_output(self) -> bool:
        """Whether there is output that the keeper has not read yet."""
        # poll(2) first waits until the kernel has moved output to the master side.
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return any(events & select.POLLIN for _, events in poll.poll(0))

    def foreground_group(self) -> int:
        """Return the foreground process group; 0 if there is none."""
        with contextlib.suppress(OSError):
            return max(0, os.tcgetpgrp(self.fd))
        return 0

    def signal_foreground(self, number: signal.Signals | int) -> bool:
        # killpg(0) would signal this process's own group.
        if group := self.foreground_group():
            with contextlib.suppress(OSError):
                os.killpg(group, number)
                return True
        return False


def window_size(master: int) -> tuple[int, int] | None:
    """Return the columns and rows of a PTY; None if unknown, or one of them is 0."""
    try:
        rows, cols, _, _ = struct.unpack("4H", fcntl.ioctl(master, termios.TIOCGWINSZ, bytes(8)))
    except OSError:
        return None
    return (cols, rows) if cols and rows else None
