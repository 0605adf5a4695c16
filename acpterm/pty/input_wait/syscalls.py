"""Decode from `/proc/PID/task/TID/syscall` on which descriptors a thread waits for input.

That file has the number and arguments of the system call that a sleeping thread is in. The memory
that the arguments point to is in `/proc/PID/mem`, and the descriptors that an epoll descriptor
watches are in `/proc/PID/fdinfo`. Reading these files requires the permission to trace the process,
but the process is neither traced nor stopped.

System call numbers depend on the architecture. `KNOWN` is true if this module has the numbers of
this machine's architecture.
"""

import errno
import os
import struct
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from acpterm.pty.linux import read_once


class BlockedRead(NamedTuple):
    """A system call in which a thread is blocked until there is input on one of `fds`."""

    fds: tuple[int, ...]
    timeout: float | None = None  # seconds after which the call ends even without input
    plain: bool = False  # has no timeout argument (like read(2)), so the terminal's VTIME applies


class UndecidedError(Exception):
    """The thread is in a system call that cannot be decoded, and that may wait for input."""


_Decode = Callable[[int, list[int]], BlockedRead]

# The events of input: POLLIN and POLLRDNORM (poll(2)). epoll has the same numbers for them.
_READABLE: Final = 0x01 | 0x40
# The maximum number of descriptors of one call that are decoded. Interactive programs have few.
_FDS_MAX: Final = 1024
_FDINFO_BYTES_MAX: Final = 65_536  # enough for some thousand descriptors in an epoll
_TIMEVAL_UNIT_S: Final = 1e-6
_TIMESPEC_UNIT_S: Final = 1e-9
# The stack of a 64-bit program is above this address. A 32-bit program, whose stack is below it,
# has other system call numbers.
_32_BITS: Final = 1 << 32
# ARM programs may tag a pointer in its top byte, which is not part of the address.
_ADDRESS_MASK: Final = (1 << 56) - 1


def blocked_for(pid: int, tid: int) -> BlockedRead | None:
    """Return the system call in which a thread waits for input, if it does.

    Raises `PermissionError` if the thread may not be inspected, another `OSError` if it has moved
    on or no descriptor is free, and `UndecidedError`.
    """
    # The file contains `NUMBER ARG0 … ARG5 STACK PC` in a call, `-1 STACK PC` outside any call, and
    # `running` for a thread that does not sleep.
    words = read_once(f"/proc/{pid}/task/{tid}/syscall", 256).split()
    if len(words) != 9:
        return None
    arguments = [int(word, 16) for word in words[1:8]]
    if arguments[6] < _32_BITS:
        raise UndecidedError
    number = int(words[0])
    # A poll that was interrupted, such as by a suspend of the machine, continues as
    # restart_syscall(2).
    if number == _RESTART and b"poll" in read_once(f"/proc/{pid}/task/{tid}/wchan", 256):
        return _poll(pid, arguments)
    if number == _IO_URING_ENTER and arguments[2]:
        raise UndecidedError
    decode = _DECODERS.get(number)
    return None if decode is None else decode(pid, arguments)


def _memory(pid: int, address: int, size: int) -> bytes:
    fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        found = os.pread(fd, size, address & _ADDRESS_MASK)
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
    """Return the signed number in the low 32 bits of a register; the other bits are undefined."""
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
    if count == 0:  # a call that only sleeps: the address may be invalid
        return ()
    entries = struct.iter_unpack("=ihh", _memory(pid, arguments[0], count * 8))
    return tuple(fd for fd, events, _ in entries if fd >= 0 and events & _READABLE)


def _poll(pid: int, arguments: list[int]) -> BlockedRead:
    return BlockedRead(_fds_polled_for_input(pid, arguments), _milliseconds(arguments[2]))


def _ppoll(pid: int, arguments: list[int]) -> BlockedRead:
    return BlockedRead(
        _fds_polled_for_input(pid, arguments), _time(pid, arguments[2], _TIMESPEC_UNIT_S)
    )


def _watched(pid: int, epoll: int) -> tuple[int, ...]:
    # One line per descriptor: `tfd:        5 events:       19 data: …` (proc_pid_fdinfo(5)).
    lines = read_once(f"/proc/{pid}/fdinfo/{epoll}", _FDINFO_BYTES_MAX).splitlines()
    words = [line.split() for line in lines if line.startswith(b"tfd:")]
    return tuple(int(word[1]) for word in words if len(word) > 3 and int(word[3], 16) & _READABLE)


def _epoll(pid: int, arguments: list[int]) -> BlockedRead:
    return BlockedRead(_watched(pid, _int(arguments[0])), _milliseconds(arguments[3]))


def _epoll2(pid: int, arguments: list[int]) -> BlockedRead:
    return BlockedRead(
        _watched(pid, _int(arguments[0])), _time(pid, arguments[3], _TIMESPEC_UNIT_S)
    )


_IO_URING_ENTER: Final = 426
_RESTARTS: Final = {"x86_64": 219, "aarch64": 128}
# splice is treated as a read: its first argument is the descriptor to read from. Some `cat` use it.
_TABLES: Final[dict[str, dict[int, _Decode]]] = {
    "x86_64": {
        0: _read,
        7: _poll,
        19: _read,  # readv
        23: _select_in(_TIMEVAL_UNIT_S),
        232: _epoll,
        270: _select_in(_TIMESPEC_UNIT_S),
        271: _ppoll,
        275: _read,  # splice
        281: _epoll,
        441: _epoll2,
    },
    "aarch64": {
        22: _epoll,
        63: _read,
        65: _read,  # readv
        72: _select_in(_TIMESPEC_UNIT_S),
        73: _ppoll,
        76: _read,  # splice
        441: _epoll2,
    },
}

_MACHINE: Final = os.uname().machine if sys.platform == "linux" else ""
_DECODERS: Final = _TABLES.get(_MACHINE, {})
_RESTART: Final = _RESTARTS.get(_MACHINE)
# Whether system calls can be decoded on this machine: Linux on x86_64 or aarch64.
KNOWN: Final = bool(_DECODERS)
