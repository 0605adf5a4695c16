"""The master side of one PTY: read what the program wrote, type, set the window's size.

Owns the descriptor, through a `ptyprocess.PtyProcess`, from construction until `close`. Nothing
here blocks: the descriptor is non-blocking, and of ptyprocess's methods those that sleep or wait
(`close`, `terminate`, `wait`, and its finalizer) are never reached.

What a read can find:

- `EMPTY`: nothing more just now. On Linux a read that says so has first waited for the kernel's
  own queue between the two sides, so that all that was written before it has been read;
- `FULL`: the buffer is, and there may be more;
- `CLOSED`: nobody has the slave open. Final once the child is gone; while it runs, somebody may
  open `/dev/tty` again.
"""

import array
import contextlib
import enum
import errno
import fcntl
import os
import signal
import termios
import time
from typing import Final

import ptyprocess
import trio

from acpterm.pty import linux, waiting

# How often the line discipline is asked whether more has come before the PTY counts as empty,
# and how long one of those tries may take: on a busy machine, yielding is no way to wait.
_YIELDS: Final = 200
_LONGEST_YIELD: Final = 0.004
# Seconds without another try after one that took too long.
_IMPATIENCE: Final = 0.02
# Seconds that one read, of a whole buffer, may take to gather.
_PATIENCE: Final = 0.003
# Bytes in one go that tell a flood from a line now and then.
_FLOOD: Final = 1024
# Not everywhere; where there is none, looking again is all the patience there is.
_yield: Final = getattr(os, "sched_yield", lambda: None)
# The signals that TIOCSIG takes: those that a key sends (ioctl_tty(2)).
_BY_KEY: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)


class After(enum.Enum):
    """What a read found behind the bytes it took."""

    EMPTY = "empty"
    FULL = "full"
    CLOSED = "closed"


class How(enum.Enum):
    """When a read stops, on Linux, where a worker of the kernel moves output in steps of 4 KiB."""

    PLAIN = "plain"
    """When there is nothing more: a read waits for the worker before it says so. That is the one
    way to know that all was read which was written before."""
    GATHER = "gather"
    """As late as can be, for speed. Where there was 1 KiB or more, a PTY found empty gets a little
    time to fill again: the processor is yielded, up to 200 times, 3 ms in all, or until a yield
    has taken longer than 4 ms. The worker then runs at once; a reader that sleeps and is woken
    for each step is a quarter slower. `EMPTY` means that nothing came in that time."""
    WAITING = "waiting"
    """When what is there already has been read: never waits for the worker, which on a machine
    with more programs than processors may take milliseconds. `EMPTY` says little."""


class Master:
    """The master side of the terminal of the child `pid`; takes over the descriptor `fd`."""

    def __init__(self, pid: int, fd: int) -> None:
        self.fd = fd
        self._impatient_until = 0.0
        self._waiting = array.array("i", (0,))
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

    def read(self, buffer: memoryview, how: "How | None" = None) -> tuple[int, After]:
        """Read until the PTY is empty or `buffer` full: how many bytes, and what came after.

        `how` says what empty means: see `How`; by default `How.PLAIN`.
        """
        taken = 0
        gather, waiting = how is How.GATHER, how is How.WAITING
        deadline = time.perf_counter() + _PATIENCE if gather else 0.0
        while taken < len(buffer):
            if gather and taken >= _FLOOD and not self._more(deadline):
                return taken, After.EMPTY
            if waiting and not self._waiting_bytes():
                return taken, After.EMPTY
            try:
                got = os.readv(self.fd, [buffer[taken:]])
            except BlockingIOError:
                return taken, After.EMPTY
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                return taken, After.CLOSED
            if got == 0:  # how other systems than Linux say it
                return taken, After.CLOSED
            taken += got
        return taken, After.FULL

    def _waiting_bytes(self) -> int:
        fcntl.ioctl(self.fd, termios.FIONREAD, self._waiting)
        return self._waiting[0]

    def _more(self, deadline: float) -> bool:
        for _ in range(_YIELDS):
            if self._waiting_bytes():
                return True
            before = time.perf_counter()
            if before > deadline or before < self._impatient_until:
                return False
            _yield()
            after = time.perf_counter()
            if after - before > _LONGEST_YIELD:
                self._impatient_until = after + _IMPATIENCE
                return False
        return False

    async def wait_readable(self) -> None:
        """Wait until there is something to read, or nobody has the slave open."""
        await trio.lowlevel.wait_readable(self.fd)

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
        return None if self.closed else waiting.waits_for_input(self.fd, quiet)

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


def open_pair(cols: int, rows: int) -> tuple[int, int]:
    """Open a PTY whose window has that size: the descriptors of master and slave.

    Neither is inherited by programs. Raises `OSError` when the machine has no more to give.
    """
    master, slave = os.openpty()
    try:
        termios.tcsetwinsize(slave, (rows, cols))
        linux.set_utf8_input(slave)
    except BaseException:
        os.close(master)
        os.close(slave)
        raise
    return master, slave
