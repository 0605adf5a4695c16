"""What the line discipline of a terminal takes of the input that is typed.

Found by experiment on Linux 6.18, with and without ECHO and IUTF8:

- In line mode (ICANON), a line has at most 4095 bytes besides its end. The end is a newline, VEOL,
  VEOF, or a carriage return if ICRNL is set. The rest of a longer line is dropped, although the
  write to the master succeeds. (`_PC_MAX_CANON` is 255, and not the limit.)
- Complete lines that are not read are never dropped. The line discipline takes no more once it
  holds 4095 bytes; the kernel queues the input that is written then, some 10 to 64 KB, until a
  write to the master fails with EAGAIN. Nothing on the master tells how much is queued: TIOCOUTQ is
  0, and POLLOUT is set while the kernel's queue has room.
- A Ctrl-C in that queue sends no signal until the program has read what is before it.
- FIONREAD on the slave counts the unread bytes of complete lines, without VEOF; outside line mode
  all unread bytes. It does not count an unfinished line.
- A thread of the kernel passes what was written to the line discipline, mostly within 1 ms. A
  poll of a slave that has no input waits until that is done.
- TCOFLUSH on the master drops the kernel's queue; TCIFLUSH on the slave drops what the line
  discipline holds.
- To open the slave by TIOCGPTPEER, ask and close takes 8 µs. While it is open the PTY does not hang
  up, so it is not kept open.
"""

import contextlib
import fcntl
import os
import select
import struct
import sys
import termios
from collections.abc import Iterator
from typing import Final, NamedTuple

_TIOCGPTPEER: Final = 0x5441  # ioctl_tty(2)
_DISABLED: Final = b"\0" if sys.platform == "linux" else b"\xff"  # _POSIX_VDISABLE


class InputMode(NamedTuple):
    """How a terminal reads input."""

    line_bytes_max: int | None = None  # without the end; None outside line mode
    ends: bytes = b""  # end or discard the line
    signals: bytes = b""  # send a signal, and discard the unread input

    def interrupts(self, data: bytes) -> bool:
        return any(character in data for character in self.signals)

    def line_lengths(self, unfinished: int, data: bytes) -> list[int]:
        """Return the lengths of the lines; the first continues `unfinished` bytes."""
        if len(self.ends) > 1:
            data = data.translate(bytes.maketrans(self.ends, self.ends[:1] * len(self.ends)))
        lengths = [len(line) for line in (data.split(self.ends[:1]) if self.ends else [data])]
        lengths[0] += unfinished
        return lengths


RAW: Final = InputMode()


def input_mode(master: int) -> InputMode:
    """Return the mode of a terminal by its master. Raises `termios.error`."""
    flags, _, _, local, _, _, characters = termios.tcgetattr(master)

    def enabled(*names: int) -> bytes:
        return b"".join(characters[name] for name in names).replace(_DISABLED, b"")

    sends = local & termios.ISIG and not local & termios.NOFLSH
    signals = enabled(termios.VINTR, termios.VQUIT, termios.VSUSP) if sends else b""
    if not local & termios.ICANON:
        return InputMode(signals=signals)
    ends = enabled(termios.VEOF, termios.VEOL, termios.VEOL2, termios.VKILL) + signals
    if not flags & termios.INLCR:
        ends += b"\n"
    if flags & termios.ICRNL and not flags & termios.IGNCR:
        ends += b"\r"
    line_bytes_max = 4095 if sys.platform == "linux" else os.fpathconf(master, "PC_MAX_CANON") - 1
    return InputMode(line_bytes_max, ends, signals)


def unread(master: int) -> int:
    """Return how many bytes of complete lines the line discipline holds; 0 if that is unknown."""
    with contextlib.suppress(OSError), _slave(master) as slave:
        poll = select.poll()
        poll.register(slave, select.POLLIN)
        if not poll.poll(0):
            return 0
        (count,) = struct.unpack("i", fcntl.ioctl(slave, termios.FIONREAD, bytes(4)))
        return int(count)
    return 0


def discard_input(master: int) -> None:
    """Drop the input that was written to the master and that the program has not read."""
    with contextlib.suppress(OSError, termios.error):
        termios.tcflush(master, termios.TCOFLUSH)
        with _slave(master) as slave:
            termios.tcflush(slave, termios.TCIFLUSH)


@contextlib.contextmanager
def _slave(master: int) -> Iterator[int]:
    flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    fd = fcntl.ioctl(master, _TIOCGPTPEER, flags)
    try:
        yield fd
    finally:
        os.close(fd)
