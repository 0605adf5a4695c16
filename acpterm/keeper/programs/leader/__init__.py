"""The leader of a terminal's session: a process of ours that outlives the terminal's command.

If the command itself led the session, the kernel would hang up the command's background processes
when the command ends. So the keeper starts a leader, and the leader starts the command as its own
sibling: a child of the keeper, which so gets its exact wait status and resource usage.

    keeper --posix_spawn--> leader: new session, the PTY is its terminal
                               |--clone(CLONE_PARENT)--> command: own process group, in the
                               |                          foreground; exec
                               `--> waits until the keeper closes the socket; then exits

The leader is a static program of 0.6 KiB: its source is `x86_64.S` and `aarch64.S` beside this
file, `CODE` has the machine code, and `assemble.sh` prints it. It has no C library to load, it
shares its memory with the child until the child executes its program (vfork), and it takes 16 KiB
while it waits. Python in a forked keeper does the same in ten times the time, and `cat` takes
112 KiB.

The leader gets these descriptors: 0, 1 and 2 are the PTY's slave; 3 is a sequence-packet socket;
4 is the directory of a control group, if there is one. Its arguments are the path of the program
and the program's arguments, which it erases from its memory once the program is executed: otherwise
`pkill -f` would find the leader too. All its signals are blocked.

Messages: the keeper sends a block (`block`); the leader responds with two 64-bit numbers, the pid
(or a negative errno of clone) and 0 (or the negative errno of the step of the child that failed).
Then, and at once if it gets no arguments, it waits until the keeper closes the socket.

The leader could also give the terminal to a background group that the kernel has stopped because it
reads (`timeout 9 sh -c 'read x'`). It does not: in a shell of the user, such a program stops too.
"""

from __future__ import annotations

import binascii
import errno
import fcntl
import os
import struct
import sys

from acpterm.keeper.programs import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Sequence

NAME = "acpterm-session"
SOCKET_FD = 3
CGROUP_FD = 4
CODE = {
    "x86_64": (
        "SInlSIHsACAAAEiJ478PAAAASI01HQIAALidAAAADwVIg30AAQ+EqwAAAL8DAAAASIneugAgAAAxwA8FSD0A"
        "AgAAD4zgAAAASIN7WAB0D0iJ375YAAAAuLMBAADrFL8AwQAAMfYx0kUx0kUxwLg4AAAADwVIhcAPhLQAAABI"
        "iQNIi0UASIt9EEiJ+kiLTMUQSCn5di0xwPOqSIn+SIHmAAD//0iNuv//AABIgecAAP//SCn+dgy6BAAAALgc"
        "AAAADwW/AwAAAEiJ3roQAAAAuAEAAAAPBUiNPWkBAAC4UAAAAA8FMf+4AwAAAA8FvwEAAAC4AwAAAA8FvwIA"
        "AAC4AwAAAA8FvwQAAAC4AwAAAA8FvwMAAABIid66CAAAADHADwVIg/j8dOkx/7jnAAAADwVMi2NoTI2rgAAA"
        "AE2F5HQmMf9Ji3UASY1VCEUx0rguAQAADwVIhcAPiMgAAABJg8UYSf/M69VIi3tguF8AAAAPBUiNuwACAAC4"
        "UAAAAA8FSIXAD4idAAAAMf8x9rhtAAAADwW4JwAAAA8FSIlDcDH/vhBUAABIjVNwuBAAAAAPBUG8IAAAAESJ"
        "50iNcxAx0kG6CAAAALgNAAAADwVB/8RBg/whfuFIx0NwAAAAAL8CAAAASI1zcDHSQboIAAAAuA4AAAAPBb8D"
        "AAAAuAMAAAAPBb8EAAAAuAMAAAAPBUiLRQBIi30QSI11GEiNVMUQuDsAAAAPBUiJQwi/fgAAALg8AAAADwVh"
        "Y3B0ZXJtLXNlc3Npb24ALwA="
    ),
    "aarch64": (
        "8wMAkf8LQNH0AwCRdQJA+XYOFYvWQgCR4AGA0qEQABDoFIDSAQAA1L8GAPGABQBUYACA0uEDFKoCAITS6AeA"
        "0gEAANQfAAjxCwcAVIAuQPmgAAC04AMUqgELgNJoNoDSBwAAFAAgmNIBAIDSAgCA0gMAgNIEAIDSiBuA0gEA"
        "ANSgBQC0gAIA+WkKQPnKAkD56wMJqn8BCutiAABUfxUAOP3//xcgQUCRAAQA0QC8cJJBvXCSIQAA64kAAFSC"
        "AIDSKB2A0gEAANRgAIDS4QMUqgICgNIICIDSAQAA1CALABAoBoDSAQAA1AAAgNIoB4DSAQAA1CAAgNIBAADU"
        "QACA0gEAANSAAIDSAQAA1GAAgNLhAxSqAgGA0ugHgNIBAADUHxAAsUD//1QAAIDSyAuA0gEAANSVNkD5lwIC"
        "kXUBALQAAIDS4QJA+eIiAJEDAIDSqCCA0gEAANRABvi392IAkbUGANH2//8XgDJA+cgUgNIBAADUgAIIkSgG"
        "gNIBAADUAAX4twAAgNIBAIDSSBOA0gEAANSIFYDSAQAA1IA6APkAAIDSAYKK0oLCAZGoA4DSAQAA1BUEgNLg"
        "AxWqgUIAkQIAgNIDAYDSyBCA0gEAANS1BgCRv4YA8Q3//1SfOgD5QACA0oHCAZECAIDSAwGA0ugQgNIBAADU"
        "YACA0igHgNIBAADUgACA0gEAANRgCkD5YWIAkeIDFqqoG4DSAQAA1IAGAPnAD4DSqAuA0gEAANRhY3B0ZXJt"
        "LXNlc3Npb24ALwA="
    ),
}
_MACHINES = {"x86_64": 62, "aarch64": 183}
# ELF64: the file header, and two program headers: all of the file, and a stack without PROT_EXEC.
_ELF = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ADDRESS = 0x40_0000
_ALIGN = 0x1_0000

_MFD_EXEC = 0x10
_CLONE_VM = 0x100
_CLONE_VFORK = 0x4000
_NUMBERS = struct.Struct("=5Q")
_LIMIT = struct.Struct("=3Q")
_LIMITS_MAX = 16
_DIRECTORY_OFFSET = 512
_BLOCK_MAX = 8192
_RESPONSE = struct.Struct("=2q")
_INFINITY = (1 << 64) - 1


class Leader:
    """The leader of one session, which lives by `socket_fd`; `is_child`: of this keeper."""

    __slots__ = ("is_child", "pid", "socket_fd")

    def __init__(self, pid: int, socket_fd: int, *, is_child: bool = True) -> None:
        self.pid = pid
        self.socket_fd = socket_fd
        self.is_child = is_child

    def end(self) -> None:
        """Let the leader exit. The kernel then hangs up the session's foreground group."""
        os.close(self.socket_fd)
        if self.is_child:
            # A stopped leader would not notice the end of its socket.
            try:
                os.kill(self.pid, 9)
            except ProcessLookupError:
                return


def image() -> str | None:
    """Return the path by which the leader is executed; None on machines without its code."""
    if not _image:
        _image.append(_make_image())
    return _image[0]


_image: list[str | None] = []


def _make_image() -> str | None:
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in CODE:
        return None
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        try:
            fd = os.memfd_create(NAME, flags | _MFD_EXEC)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            fd = os.memfd_create(NAME, flags)  # before Linux 6.3
    except OSError:  # vm.memfd_noexec forbids it
        return None
    os.write(fd, elf(machine))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
    return f"/proc/self/fd/{fd}"


def elf(machine: str) -> bytes:
    """Return the leader for a machine as an ELF file."""
    code = binascii.a2b_base64(CODE[machine])
    offset = _ELF.size + 2 * _SEGMENT.size
    size = offset + len(code)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    kind = 2, _MACHINES[machine], 1
    sizes = _ELF.size, _SEGMENT.size, 2, 0, 0, 0
    header = _ELF.pack(ident, *kind, _ADDRESS + offset, _ELF.size, 0, 0, *sizes)
    text = _SEGMENT.pack(1, 5, 0, _ADDRESS, _ADDRESS, size, size, _ALIGN)
    stack = _SEGMENT.pack(0x6474_E551, 6, 0, 0, 0, 0, 0, 16)
    return header + text + stack + code


def block(
    directory: str, umask: int, limits: Sequence[tuple[int, int, int]], *, in_cgroup: bool
) -> bytes:
    """Return the first message to the leader: how the program is to start. Raises `ValueError`."""
    path = os.fsencode(directory)
    if len(limits) > _LIMITS_MAX or len(path) >= _BLOCK_MAX - _DIRECTORY_OFFSET or b"\0" in path:
        raise ValueError("the leader cannot be given this directory, or so many limits")
    flags = system.CLONE_PARENT | _CLONE_VFORK | _CLONE_VM
    clone = system.clone_arguments(flags, CGROUP_FD if in_cgroup else None)
    numbers = _NUMBERS.pack(in_cgroup, umask, len(limits), 0, 0)
    packed = b"".join(_LIMIT.pack(*(value & _INFINITY for value in limit)) for limit in limits)
    return (clone + numbers + packed).ljust(_DIRECTORY_OFFSET, b"\0") + path + b"\0"


def response(pid: int) -> bytes:
    """Return the leader's response, for a leader that runs Python."""
    return _RESPONSE.pack(pid, 0)


def started(keeper_end: _socket.socket) -> int:
    """Wait for the leader's response; return the pid of the program, which is then executed.

    Raises `OSError` if it was not. A child that failed has exited; the keeper reaps it as an
    orphan.
    """
    data = keeper_end.recv(_RESPONSE.size)
    if len(data) < _RESPONSE.size:
        raise OSError(errno.ECHILD, "the leader of the session has ended")
    pid, error = _RESPONSE.unpack(data)
    number = -min(pid, error)
    if number > 0:
        raise OSError(number, os.strerror(number))
    return int(pid)
