"""What input a thread is blocked for, decoded from `/proc/PID/task/TID/syscall`.

That file names the system call that a sleeping thread is in, with its arguments; what those point
to is in `/proc/PID/mem`, and what an epoll descriptor watches in `/proc/PID/fdinfo`. Nothing is
attached to and nobody is stopped. All of it wants the right to trace the process.

Numbers differ between machines; `KNOWN` says whether those of this one are here.
"""

import errno
import os
import struct
import sys
from collections.abc import Callable
from typing import Final, NamedTuple


class BlockedRead(NamedTuple):
    """What a thread is blocked in until there is input."""

    fds: tuple[int, ...]
    """Any of these of its descriptors will do."""
    timeout: float | None = None
    """After how many seconds the call gives up, counted from its start; None for never."""
    plain: bool = False
    """Whether this is a read itself, which the terminal's own settings may give a timeout."""


class UndecidedError(Exception):
    """The thread is in something that may wait for input, and it cannot be seen whether."""


_Decode = Callable[[int, list[int]], BlockedRead]

# Interests in input: POLLIN and POLLRDNORM (poll(2)), which epoll has the same numbers for.
_READABLE: Final = 0x01 | 0x40
# The most descriptors of one call that are looked at: an interactive program has a handful.
_FDS_MAX: Final = 1024
_FDINFO_BYTES_MAX: Final = 65_536  # bytes: some thousand descriptors in an epoll
_TIMEVAL: Final = 1e-6
_TIMESPEC: Final = 1e-9
# A 64-bit program's stack is above this; below is that of a 32-bit one, with other numbers.
_32_BITS: Final = 1 << 32
# ARM programs may mark a pointer in its top byte, which is no part of the address.
_ADDRESS: Final = (1 << 56) - 1


def blocked_for(pid: int, tid: int) -> BlockedRead | None:
    """Give what thread `tid` of process `pid` is blocked for; None when that is no input.

    Raises `PermissionError` when it may not be looked at, other `OSError` when it has gone or
    moved on meanwhile or there is no descriptor to look with, and `UndecidedError`.
    """
    # As a rule `NUMBER ARG0 … ARG5 STACK PC`; `running`; or `-1 STACK PC` outside any call.
    words = contents(f"/proc/{pid}/task/{tid}/syscall", 256).split()
    if len(words) != 9:
        return None
    arguments = [int(word, 16) for word in words[1:8]]
    if arguments[6] < _32_BITS:
        raise UndecidedError
    number = int(words[0])
    # A poll that was interrupted, by a suspend of the machine say, goes on under another number.
    if number == _RESTART and b"poll" in contents(f"/proc/{pid}/task/{tid}/wchan", 256):
        return _poll(pid, arguments)
    if number == _IO_URING_ENTER and arguments[2]:
        raise UndecidedError
    decode = _DECODERS.get(number)
    return None if decode is None else decode(pid, arguments)


def contents(path: str, most: int) -> bytes:
    """Give the first `most` bytes of a file in `/proc`, as one read gives them."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, most)
    finally:
        os.close(fd)


def _memory(pid: int, address: int, size: int) -> bytes:
    fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        found = os.pread(fd, size, address & _ADDRESS)
    finally:
        os.close(fd)
    if len(found) < size:
        raise OSError(errno.EIO, "the process has moved on")
    return found


def _time(pid: int, address: int, unit: float) -> float | None:
    if address == 0:
        return None
    seconds, fraction = struct.unpack("=qq", _memory(pid, address, 16))
    return float(seconds + fraction * unit)


def _int(register: int) -> int:
    """Take the 32 bits that an `int` has; what else is in the register means nothing."""
    return (register & 0x7FFF_FFFF) - (register & 0x8000_0000)


def _milliseconds(register: int) -> float | None:
    timeout = _int(register)
    return None if timeout < 0 else timeout / 1000


def _read(_pid: int, arguments: list[int]) -> BlockedRead:
    return BlockedRead((_int(arguments[0]),), plain=True)


def _select_in(unit: float) -> _Decode:
    def decode(pid: int, arguments: list[int]) -> BlockedRead:
        count, readable = min(_int(arguments[0]), _FDS_MAX), arguments[1]
        timeout = _time(pid, arguments[4], unit)
        if count <= 0 or readable == 0:
            return BlockedRead((), timeout)
        bits = int.from_bytes(_memory(pid, readable, (count + 63) // 64 * 8), "little")
        return BlockedRead(tuple(fd for fd in range(count) if bits >> fd & 1), timeout)

    return decode


def _fds_polled_for_input(pid: int, arguments: list[int]) -> tuple[int, ...]:
    count = min(arguments[1], _FDS_MAX)
    if count == 0:  # a way to sleep; the address may be anything
        return ()
    entries = struct.iter_unpack("=ihh", _memory(pid, arguments[0], count * 8))
    return tuple(fd for fd, events, _ in entries if fd >= 0 and events & _READABLE)


def _poll(pid: int, arguments: list[int]) -> BlockedRead:
    return BlockedRead(_fds_polled_for_input(pid, arguments), _milliseconds(arguments[2]))


def _ppoll(pid: int, arguments: list[int]) -> BlockedRead:
    return BlockedRead(_fds_polled_for_input(pid, arguments), _time(pid, arguments[2], _TIMESPEC))


def _watched(pid: int, epoll: int) -> tuple[int, ...]:
    # `tfd:        5 events:       19 data: …`, one line a descriptor (proc_pid_fdinfo(5)).
    lines = contents(f"/proc/{pid}/fdinfo/{epoll}", _FDINFO_BYTES_MAX).splitlines()
    words = [line.split() for line in lines if line.startswith(b"tfd:")]
    return tuple(int(word[1]) for word in words if len(word) > 3 and int(word[3], 16) & _READABLE)


def _epoll(pid: int, arguments: list[int]) -> BlockedRead:
    return BlockedRead(_watched(pid, _int(arguments[0])), _milliseconds(arguments[3]))


def _epoll2(pid: int, arguments: list[int]) -> BlockedRead:
    return BlockedRead(_watched(pid, _int(arguments[0])), _time(pid, arguments[3], _TIMESPEC))


_IO_URING_ENTER: Final = 426
_RESTARTS: Final = {"x86_64": 219, "aarch64": 128}
# The last one for its first argument, the descriptor that splice takes from: some `cat` do that.
_TABLES: Final[dict[str, dict[int, _Decode]]] = {
    "x86_64": {
        0: _read,
        7: _poll,
        19: _read,  # readv
        23: _select_in(_TIMEVAL),
        232: _epoll,
        270: _select_in(_TIMESPEC),
        271: _ppoll,
        275: _read,  # splice
        281: _epoll,
        441: _epoll2,
    },
    "aarch64": {
        22: _epoll,
        63: _read,
        65: _read,  # readv
        72: _select_in(_TIMESPEC),
        73: _ppoll,
        76: _read,  # splice
        441: _epoll2,
    },
}

_MACHINE: Final = os.uname().machine if sys.platform == "linux" else ""
_DECODERS: Final = _TABLES.get(_MACHINE, {})
_RESTART: Final = _RESTARTS.get(_MACHINE)
KNOWN: Final = bool(_DECODERS)
"""Whether system calls can be told apart here: on Linux, on x86_64 and aarch64."""
