"""The fork server: a small process that makes the daemon's children for it. Linux only.

A fork copies the map of the memory of whoever forks, and holds it up meanwhile; the daemon is
large, runs threads, and must not be held up. So it starts this process once and asks it for
children. Each is made with `clone3(CLONE_PARENT)`: it is the *daemon's* child, for the daemon to
wait for, and is in its cgroup from its first instruction.

Wire, over a stream socket, one request at a time, from the daemon's side:

- request: one byte; with it come the PTY's slave, the end of a pipe that the child is to read its
  program from, and, if there is one, the cgroup's folder;
- answer: two little-endian ints, the pid and an errno (one of them 0), with the child's pidfd, as
  soon as the child has its session and its terminal.

States: waiting for a request → forking → answered, and round again, until the daemon's end of the
socket is closed, for whatever reason; then it exits. It owns no child and waits for none.

The child is a *blank*: it waits on its pipe for a program (`program.pack`) and becomes that. A pipe
that is closed before says that nobody wants it any more, and ends it.

What may be imported here: see `child`.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import gc
import marshal
import os
import struct
import sys

from acpterm.pty.child import become, reset_signals, take_terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

REQUEST = b"?"
ANSWER = struct.Struct("<ii")
_INT = struct.Struct("=i")

_CLONE_PIDFD = 0x1000
_CLONE_PARENT = 0x8000
_CLONE_INTO_CGROUP = 0x2_0000_0000
# The number is the same on every architecture (Linux 5.3); struct clone_args, version 2 (5.7).
_SYS_CLONE3 = 435
_CLONE_ARGS = struct.Struct("=11Q")

# A PyDLL keeps the interpreter's lock through the call: the child is this thread, lock in hand.
_libc = ctypes.PyDLL(None, use_errno=True)


def main(fd: int) -> NoReturn:
    """Serve requests on the socket `fd` until its other end is closed."""
    reset_signals()
    os.set_inheritable(fd, False)
    # Nothing here makes cycles; a collection would only write to pages that children share.
    gc.disable()
    gc.freeze()
    # Nothing is printed here; what an inherited descriptor would keep open is not ours to keep.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    channel = _socket.socket(fileno=fd)
    # Its maker's sockets do not block; here there is nothing to do but to wait for the next.
    channel.setblocking(True)
    while True:
        request, passed, _, _ = channel.recvmsg(len(REQUEST), _socket.CMSG_SPACE(3 * _INT.size))
        if not request:
            sys.exit(0)
        _serve(channel, *(fd for (fd,) in _INT.iter_unpack(passed[0][2])))


def _serve(channel: _socket.socket, slave: int, source: int, cgroup: int | None = None) -> None:
    fds = [slave, source] if cgroup is None else [slave, source, cgroup]
    for fd in fds:
        # There is no other thread here that could fork meanwhile.
        os.set_inheritable(fd, False)
    pid, pidfd, error = 0, -1, 0
    settled, settling = os.pipe()
    try:
        pid, pidfd = _clone(cgroup)
    except OSError as failed:
        error = failed.errno or errno.EIO
    if pid == 0 and not error:
        # What a blank kept open would keep the daemon from seeing that this process is gone.
        channel.close()
        os.close(settled)
        _child(slave, source, settling)
    os.close(settling)
    if not error:
        # Until the child has the terminal, or has ended: a signal or a Ctrl-C that comes right
        # after the answer is to find it in the foreground.
        os.read(settled, 1)
    os.close(settled)
    # Before the answer: a slave that is still open here when the program has ended would keep its
    # PTY from being hung up.
    for fd in fds:
        os.close(fd)
    rights = [] if error else [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, _INT.pack(pidfd))]
    channel.sendmsg([ANSWER.pack(pid, error)], rights)
    if not error:
        os.close(pidfd)


def _child(slave: int, source: int, settling: int) -> NoReturn:
    try:
        take_terminal(slave)
        os.close(settling)
        size = int.from_bytes(_exactly(source, 4), "little")
        become(marshal.loads(_exactly(source, size)))  # noqa: S302  from the daemon alone
    finally:
        os._exit(126)


def _exactly(source: int, size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        more = os.read(source, size - len(data))
        if not more:
            os._exit(0)  # nobody wants this child
        data += more
    return data


def _clone(cgroup: int | None) -> tuple[int, int]:
    """Fork, as a sibling: the pid and pidfd of the child, or (0, -1) in the child itself.

    Without `CLONE_VM` this is a fork in all that matters: one thread, memory copied on write.
    """
    pidfd = ctypes.c_int(-1)
    flags = _CLONE_PARENT | _CLONE_PIDFD
    if cgroup is not None:
        flags |= _CLONE_INTO_CGROUP
    arguments = _CLONE_ARGS.pack(
        flags, ctypes.addressof(pidfd), 0, 0, 0, 0, 0, 0, 0, 0, 0 if cgroup is None else cgroup
    )
    pid = _libc.syscall(_SYS_CLONE3, arguments, len(arguments))
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return pid, -1 if pid == 0 else pidfd.value
