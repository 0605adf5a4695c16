"""The person's own terminal, that a command runs at: raw while a terminal is attached, then as was.

The descriptors may be shared with the shell that started the command: nothing is set on them but
the terminal's own attributes, which are put back at the end. Reading waits for input first; writing
is done in a thread, since a terminal may hold up its writer for as long as it likes.
"""

import contextlib
import os
import termios
import tty
from collections.abc import Iterator
from typing import Final

import trio

from acpterm.runtime import stdio

_CHUNK: Final = 64 * 1024
# Bytes that wait to be written before whoever brings more is held up. It is little: all of it is
# still to be seen when a key ends a flood, in a window that may be slow.
HIGH_WATER_BYTES: Final = 32 * 1024
# Bytes in one write: nobody else gets a word in meanwhile, and what is begun is not given up.
CHUNK_BYTES: Final = 8 * 1024


class Tty:
    """The terminal on the descriptors `reads` and `writes`."""

    def __init__(self, reads: int = 0, writes: int = 1) -> None:
        self._reads: Final = reads
        self._writes: Final = writes
        self._before = termios.tcgetattr(reads)

    @staticmethod
    def is_there(reads: int = 0, writes: int = 1) -> bool:
        """Whether both descriptors are a terminal."""
        return os.isatty(reads) and os.isatty(writes)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of its window; 80 and 24 where it does not say."""
        try:
            found = os.get_terminal_size(self._writes)
        except OSError:  # it is gone
            return 80, 24
        return found.columns or 80, found.lines or 24

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        """Have every key passed on as it is, for as long as the block lasts."""
        self.make_raw()
        try:
            yield
        finally:
            # A terminal that is gone has no attributes to put back.
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._reads, termios.TCSANOW, self._before)

    def make_raw(self) -> None:
        """Make it raw, again: a shell may have changed it while this process was stopped.

        What was typed before is kept, and no output is waited for.
        """
        with contextlib.suppress(termios.error):
            tty.setraw(self._reads, termios.TCSANOW)

    async def read(self) -> bytes:
        """Wait for what is typed; nothing is that the terminal is gone."""
        while True:
            await trio.lowlevel.wait_readable(self._reads)
            try:
                return os.read(self._reads, _CHUNK)
            except BlockingIOError:  # somebody else made it non-blocking, and was faster
                continue
            except OSError:
                return b""

    async def write(self, data: bytes) -> None:
        """Print `data`. Raises `OSError` when the terminal is gone."""
        await stdio.write_all(self._writes, data)


class Printer:
    """Prints in order what it is given, and says when that is enough for now."""

    def __init__(self, terminal: Tty) -> None:
        self._terminal = terminal
        self._parts: list[bytes] = []
        self._size = 0
        self._printing = False
        self._has_parts = trio.Event()
        self._done = trio.lowlevel.ParkingLot()

    def put(self, data: bytes) -> None:
        """Have `data` printed after all that was put before."""
        self._parts.append(data)
        self._size += len(data)
        self._has_parts.set()

    async def drain(self) -> None:
        """Wait until not too much is left to be printed."""
        await trio.lowlevel.checkpoint()
        while self._size > HIGH_WATER_BYTES:
            await self._done.park()

    async def flush(self) -> None:
        """Wait until all is printed."""
        while self._size:
            await self._done.park()

    async def run(self) -> None:
        """Print, until cancelled. Raises `OSError` when the terminal is gone."""
        while True:
            await self._has_parts.wait()
            self._has_parts = trio.Event()
            parts, self._parts = self._parts, []
            data = memoryview(b"".join(parts))
            for at in range(0, len(data), CHUNK_BYTES):
                piece = bytes(data[at : at + CHUNK_BYTES])
                await self._terminal.write(piece)
                self._size -= len(piece)
                self._done.unpark_all()
