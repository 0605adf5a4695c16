"""The master side of one PTY, as the worker uses it: type, resize, signal, ask.

The keeper reads the output; this is a duplicate of its descriptor, owned from construction until
`close`. Nothing here blocks: the descriptor is non-blocking, and of ptyprocess's methods those that
sleep or wait (`close`, `terminate`, `wait`, and its finalizer) are never reached.
"""

import contextlib
import fcntl
import os
import signal
import struct
import termios
from typing import Final

import ptyprocess
import trio

from acpterm.pty.input_wait import detect

# The signals that TIOCSIG takes: those that a key sends (ioctl_tty(2)).
_BY_KEY: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)


class Master:
    """The master side of the terminal of the child `pid`; takes over the descriptor `fd`."""

    def __init__(self, pid: int, fd: int) -> None:
        self.fd = fd
        self._pid = pid
        self._made: ptyprocess.PtyProcess | None = None
        os.set_blocking(fd, False)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.fd < 0

    def close(self) -> None:
        """Close the descriptor: the kernel hangs up the session. Can be repeated."""
        if self.fd >= 0:
            trio.lowlevel.notify_closing(self.fd)
            fd, self.fd = self.fd, -1
            with contextlib.suppress(OSError):
                if self._made is None:
                    os.close(fd)
                else:
                    self._made.fileobj.close()

    @property
    def _process(self) -> ptyprocess.PtyProcess:
        """Made at its first use: most terminals live without."""
        if self._made is None:
            self._made = ptyprocess.PtyProcess(self._pid, self.fd)
            # Its finalizer would otherwise close, sleep and kill.
            self._made.closed = True
        return self._made

    async def wait_writable(self) -> None:
        """Wait until the program's input has room.

        Raises `trio.ClosedResourceError` when the terminal is closed meanwhile.
        """
        if self.closed:
            raise trio.ClosedResourceError
        await trio.lowlevel.wait_writable(self.fd)

    def write(self, data: bytes) -> int:
        """Type `data` to the program, as from a keyboard: how many bytes there was room for."""
        try:
            return os.write(self.fd, data)
        except BlockingIOError:
            return 0

    def resize(self, cols: int, rows: int) -> None:
        """Set the window's size, in character cells; the foreground group gets SIGWINCH."""
        self._process.setwinsize(rows, cols)

    @property
    def echoes(self) -> bool:
        """Whether what is typed is shown: not so while a password is asked for."""
        return bool(self._process.getecho())

    def waits_for_input(self, quiet: float = 0.0) -> bool | None:
        """Whether the program is blocked until something is typed; see `waiting`."""
        return None if self.closed else detect.waits_for_input(self.fd, quiet)

    def signal_foreground(self, number: signal.Signals | int) -> bool:
        """Signal the terminal's foreground process group, as a key does; whether there is one."""
        if number in _BY_KEY and hasattr(termios, "TIOCSIG"):
            with contextlib.suppress(OSError):
                fcntl.ioctl(self.fd, termios.TIOCSIG, int(number))
                return True
        with contextlib.suppress(OSError):
            group = os.tcgetpgrp(self.fd)
            # 0: there is no foreground group; killpg(0) would be our own.
            if group > 0:
                os.killpg(group, number)
                return True
        return False


def window_size(master: int) -> tuple[int, int] | None:
    """Return the columns and rows of a PTY; None if they cannot be had, or are not set."""
    try:
        rows, cols, _, _ = struct.unpack("4H", fcntl.ioctl(master, termios.TIOCGWINSZ, bytes(8)))
    except OSError:
        return None
    return (cols, rows) if cols and rows else None
