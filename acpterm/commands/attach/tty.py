"""The window in which this command runs: raw mode while attached, input, and queued output.

The descriptors may be shared with the shell that started the command. So only the window's terminal
attributes are changed, and no flags such as O_NONBLOCK. Reads wait until the descriptor is
readable; writes run in a thread, since a window may block its writer for any time.
"""

import contextlib
import fcntl
import os
import stat
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Final

import trio

from acpterm.commands.output.blocking_stdout import window_size
from acpterm.runtime import stdio

_READ_BYTES_MAX: Final = 64 * 1024
HIGH_WATER_BYTES: Final = 32 * 1024
"""Small, since a slow window still prints the whole queue after a key has stopped a flood."""
CHUNK_BYTES: Final = 8 * 1024
"""Maximum size of one write. A write can be neither interrupted nor cancelled."""


class Tty:
    def __init__(self, in_fd: int = 0, out_fd: int = 1) -> None:
        self._in_fd: Final = in_fd
        self._out_fd: Final = out_fd
        self._original = termios.tcgetattr(in_fd)

    @staticmethod
    def is_there() -> bool:
        """Return whether this command has a window: stdin and stdout are terminals."""
        return os.isatty(0) and os.isatty(1)

    @staticmethod
    def beside_data() -> "Tty | None":
        """Return the window if only stdin is no terminal, as in `seq 3 | acpterm run less`."""
        if sys.stdin is None or not os.isatty(1):
            return None
        with contextlib.suppress(OSError):  # stdout is not our controlling terminal
            # Commands in the background of a script get /dev/null.
            is_data = not stat.S_ISCHR(os.fstat(0).st_mode)
            is_readable = fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
            # In the background, a read would stop this process.
            if is_data and is_readable and os.tcgetpgrp(1) == os.getpgrp():
                return Tty(in_fd=1)
        return None

    @property
    def size(self) -> tuple[int, int]:
        return window_size(self._out_fd)

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        self.make_raw()
        try:
            yield
        finally:
            # Restoring the attributes fails if the window was closed.
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._in_fd, termios.TCSANOW, self._original)

    def make_raw(self) -> None:
        # Not TCSADRAIN: a window may never display its output. The shell may change the mode during
        # a stop, so this is called again after it.
        with contextlib.suppress(termios.error):
            tty.setraw(self._in_fd, termios.TCSANOW)

    async def read(self) -> bytes:
        """Wait for input and return it; return empty bytes once the window is closed."""
        while True:
            await trio.lowlevel.wait_readable(self._in_fd)
            try:
                return os.read(self._in_fd, _READ_BYTES_MAX)
            except BlockingIOError:  # another process made it non-blocking, and read the input
                continue
            except OSError:
                return b""

    async def write(self, data: bytes) -> None:
        await stdio.write_all(self._out_fd, data)


class Printer:
    """A queue of data that `run` prints; `put` never waits, so await `drain` after much data."""

    def __init__(self, terminal: Tty) -> None:
        self._terminal = terminal
        self._parts: list[bytes] = []
        self._size = 0
        self._has_parts: Final = trio.lowlevel.ParkingLot()
        self._printed: Final = trio.lowlevel.ParkingLot()

    def put(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        self._has_parts.unpark_all()

    async def drain(self) -> None:
        await trio.lowlevel.checkpoint()
        while self._size > HIGH_WATER_BYTES:
            await self._printed.park()

    async def flush(self) -> None:
        while self._size:
            await self._printed.park()

    async def run(self) -> None:
        """Print queued data until cancelled. Raises `OSError` if the window was closed."""
        while True:
            while not self._parts:
                await self._has_parts.park()
            parts, self._parts = self._parts, []
            data = memoryview(b"".join(parts))
            for at in range(0, len(data), CHUNK_BYTES):
                piece = bytes(data[at : at + CHUNK_BYTES])
                await self._terminal.write(piece)
                self._size -= len(piece)
                self._printed.unpark_all()


def tab_stops(cols: int) -> bytes:
    # DECST8C would do this in one short sequence, but not all windows support it.
    stops = "".join(f"\x1b[{column}G\x1bH" for column in range(9, cols + 1, 8))
    return f"\x1b7\x1b[3g{stops}\x1b8".encode()
