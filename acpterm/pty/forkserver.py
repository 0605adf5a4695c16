"""The fork server: a small process that makes the daemon's children for it. Linux only.

A fork copies the map of the memory of whoever forks, and holds it up meanwhile; the daemon is
large, runs threads, and must not be held up. So it starts this process once and sends it a
request per child: the program, the PTY's slave, and a cgroup where there is one. The child is
made with `clone3(CLONE_PARENT)`: it is the *daemon's* child, for the daemon to wait for, and is
in its cgroup from its first instruction.

Wire, over a stream socket, one request at a time, from the daemon's side:

- request: 4 bytes, little-endian, the length of what follows; `marshal` of a `Program`'s fields;
  with the first byte come the slave's descriptor and, if there is one, the cgroup's;
- answer: two little-endian ints, the pid and an errno (one of them 0), with the child's pidfd, as
  soon as the child has its session and its terminal; its program may not have begun.

States: waiting for a request → forking → answered, and round again, until the daemon's end of the
socket is closed, for whatever reason; then it exits. It owns no child and waits for none.
"""

import ctypes
import errno
import gc
import marshal
import os
import signal
import socket
import struct
import sys
from typing import NoReturn

from acpterm.pty.child import Program, become, reset_signals, take_terminal

LENGTH = struct.Struct("<I")
ANSWER = struct.Struct("<ii")

_CLONE_PIDFD = 0x1000
_CLONE_PARENT = 0x8000
_CLONE_INTO_CGROUP = 0x2_0000_0000
# The number is the same on every architecture (Linux 5.3); struct clone_args, version 2 (5.7).
_SYS_CLONE3 = 435
_CLONE_ARGS = struct.Struct("=11Q")

# A PyDLL keeps the interpreter's lock through the call: the child is this thread, lock in hand.
_libc = ctypes.PyDLL(None, use_errno=True)


def pack(program: Program) -> bytes:
    """Write a request, without its descriptors."""
    fields = (
        list(program.argv),
        dict(program.env),
        program.cwd,
        program.umask,
        list(program.rlimits),
        None if program.otherwise is None else list(program.otherwise),
    )
    body = marshal.dumps(fields)
    return LENGTH.pack(len(body)) + body


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
    with socket.socket(fileno=fd) as channel:
        # Its maker's sockets do not block; here there is nothing to do but to wait for the next.
        channel.setblocking(True)
        while (request := _receive(channel)) is not None:
            _serve(channel, *request)
    sys.exit(0)


def _receive(channel: socket.socket) -> tuple[Program, list[int]] | None:
    head, fds, _, _ = socket.recv_fds(channel, LENGTH.size, 2)
    if not head:
        return None
    for fd in fds:
        # recv_fds ignores its flags, MSG_CMSG_CLOEXEC among them. There is no other thread here.
        os.set_inheritable(fd, False)
    head += _exactly(channel, LENGTH.size - len(head))
    body = _exactly(channel, LENGTH.unpack(head)[0])
    return Program(*marshal.loads(body)), fds  # noqa: S302  the daemon alone holds the other end


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = channel.recv(size - len(data))
        if not more:
            sys.exit(0)  # the daemon went in the middle of a request
        data += more
    return data


def _serve(channel: socket.socket, program: Program, fds: list[int]) -> None:
    slave = fds[0]
    cgroup = fds[1] if len(fds) > 1 else None
    pid, pidfd, error = 0, -1, 0
    settled, settling = os.pipe()
    try:
        pid, pidfd = _clone(cgroup)
    except OSError as failed:
        error = failed.errno or errno.EIO
    if pid == 0 and not error:
        _child(slave, program, settling)
    os.close(settling)
    if not error:
        # Until the child has the terminal, or has ended: a signal or a Ctrl-C that comes right
        # after the answer is to find it in the foreground.
        os.read(settled, 1)
    os.close(settled)
    socket.send_fds(channel, [ANSWER.pack(pid, error)], [] if error else [pidfd])
    for fd in (*fds, pidfd):
        if fd >= 0:
            os.close(fd)


def _child(slave: int, program: Program, settling: int) -> NoReturn:
    try:
        take_terminal(slave)
        os.close(settling)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        become(program)
    finally:
        os._exit(126)


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
