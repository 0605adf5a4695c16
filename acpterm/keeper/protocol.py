"""The protocol between the keeper and a worker.

Transport: a pair of sequence-packet Unix sockets (datagram sockets where the system has no
sequence packets). One message is one datagram: `marshal` of `(VERSION, kind, *fields)`, with
descriptors as SCM_RIGHTS. A message of more than `DATAGRAM_BYTES` is sent in an unlinked file
whose descriptor is the last one passed; the datagram is then `(VERSION, "big")`.

From the worker:

    hello(worker_version)               first message; the keeper responds with its state: `welcome`
                                        to `state_end`, below
    ready()                             the state is restored; the keeper responds with `go`
    refuse(reason)                      instead of `ready`: this worker cannot take over, and exits
    spawn(request, name, program, cols, rows, ring_size, record, encoding)
                                        [cgroup directory] or []; an encoding of `encodings`
    put(key, value) descriptors         store an entry, replacing any entry of that key
    delete(key)
    close(name)                         close the keeper's master of a terminal
    forget(name)                        drop a terminal with its ring, report and entries "t/NAME"
                                        and "e/NAME"
    restart(request)                    replace this worker by the installed version
    status(text), alive()               for the service manager
    end()                               the daemon shuts down: when this worker exits, the keeper
                                        kills all programs

From the keeper:

    welcome(keeper_pid, takeovers, embedded, stored)   [event to the worker, event to the keeper]
    terminal(name, pid, started, exit, closed_end, session)   [ring] or [ring, master]
    entry(key, value) descriptors
    state_end()
    go()
    spawned(request, name, pid, started, way, session)   [ring, master]; [ring] if the PTY is closed
    refused(request, errno, message)
    exited(name, wait_status, cpu_s, max_rss_bytes, reaped_at, end, orphans)
    closed(name, end)
    terminate()                         a signal requests that the daemon shut down
    restart_failed(request, reason)

`takeovers` is the number of workers that served before this one. `embedded` is true if the keeper
is the worker's child. `stored` is true if the service manager stores the descriptors that let
programs outlive the keeper. `started` is the program's start time in seconds since boot.
`exit` has the fields of `exited` from `wait_status` to `end`; it is None while the program runs.
`orphans` are the pids of the keeper's children that are neither programs nor leaders nor workers,
just after it has reaped the program; None if unknown, or more than `ORPHANS_MAX`.
`closed_end` is `end` of `closed`; it is None until the terminal is closed. `way` is how the program
was started, such as `leader`. `session` is the id of the PTY's session, which is the pid of its
leader (see `programs.leader`); None if the program leads it, or the PTY has closed. `wait_status`
is None when the status is unknown, because the program is not this keeper's child.

States of a worker, as the keeper sees it:

    starting --hello--> restoring --ready--> ready --go--> serving --end--> ending
       each state --process exits--> ended

Before it gets `go`, a worker has no effect on clients or programs: it does not write `CONSUMED` in
a ring, answers no query of a program, sends no `put`, and accepts no connection of a client. So the
keeper can still kill a new worker that is to replace a serving worker.

States of a terminal: *running*; *exited* when the child is reaped (`exited` is sent, and everything
that the child wrote is before `end`); *closed* when in addition the PTY has closed (`closed` is
sent, and no more output follows). `exited` always comes before `closed`.

Races and failures:

- The worker dies between `spawn` and `spawned`: the program was started exactly once if the keeper
  received the request. The next worker is sent the new terminal, and its record (the terminal's
  state, a field of `spawn`) as the entry "t/NAME".
- The worker cancels a spawn: it sends `forget` once the response arrives.
- `forget` of a running program: its process group is killed, and no `exited` is sent.
- `close`, `forget` or `delete` of an unknown name is ignored.
- A worker does not read: the keeper queues messages to it, and continues.
- A message of an unknown kind is ignored, and so are additional fields of a message (but not of the
  tuple `program` in `spawn`): a worker may be newer than its keeper. A different VERSION is refused
  with `ProtocolError`.
- The receiver cannot open all descriptors of a message (`Message.cut`): the keeper refuses such a
  spawn with EMFILE, and ignores such a `put`. The worker sends `forget` for such a `spawned`, and
  `refuse` if such a message arrives before `state_end`.
"""

from __future__ import annotations

import _socket
import errno
import marshal
import mmap
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

VERSION = 1
# of a worker: the descriptor number of its socket to the keeper
KEEPER_FD_VARIABLE = "ACPTERM_KEEPER_FD"
DATAGRAM_BYTES = 64 * 1024
_SEND_BUFFER_BYTES = 1024 * 1024
# The kernel allows 253 in one message (SCM_MAX_FD); one is reserved for the file of a long message.
DESCRIPTORS_MAX = 252
ORPHANS_MAX = 1000
_INT = struct.Struct("=i")
_SEQPACKET = getattr(_socket, "SOCK_SEQPACKET", None)
_CLOEXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
_BIG = marshal.dumps((VERSION, "big"), 2)


class ProtocolError(Exception):
    """A received message is invalid, or of another version of the protocol."""


class Message:
    """A received message: its kind, its fields, and its descriptors, which it owns."""

    __slots__ = ("cut", "fds", "fields", "kind")

    def __init__(self, kind: str, fields: tuple[Any, ...], fds: list[int], *, cut: bool) -> None:
        self.kind = kind
        self.fields = fields
        self.fds = fds
        self.cut = cut  # `fds` lacks some: this process could open no more

    def take_fds(self) -> list[int]:
        """Return the descriptors and pass their ownership to the caller."""
        fds, self.fds = self.fds, []
        return fds

    def close(self) -> None:
        """Close the descriptors, unless `take_fds` has returned them."""
        for fd in self.take_fds():
            os.close(fd)


def socket_pair() -> tuple[_socket.socket, _socket.socket]:
    """Create the two ends of a socket between worker and keeper, both non-blocking."""
    try:
        kind = _socket.SOCK_DGRAM if _SEQPACKET is None else _SEQPACKET
        ends = _socket.socketpair(_socket.AF_UNIX, kind)
    except OSError as error:
        if error.errno not in (errno.EPROTONOSUPPORT, errno.EPROTOTYPE):
            raise
        ends = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    for end in ends:
        end.setblocking(False)
        # The kernel doubles the value and caps it at net.core.wmem_max: by default this gives
        # twice the normal buffer.
        end.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    return ends


def encode(kind: str, *fields: Any) -> bytes:
    """Return the datagram that carries a message."""
    return marshal.dumps((VERSION, kind, *fields), 2)


def send(sock: _socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """Send a message that `encode` returned.

    Raises `BlockingIOError` if the socket's buffer is full, `BrokenPipeError` if the peer has
    closed its end, and another `OSError`: EMFILE if no descriptor is free for the file of a long
    message, ETOOMANYREFS while too many descriptors are in flight.
    """
    if len(data) <= DATAGRAM_BYTES:
        _send(sock, data, fds)
        return
    file = unlinked_file("acpterm-message")
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        _send(sock, _BIG, (*fds, file))
    finally:
        os.close(file)


def _send(sock: _socket.socket, data: bytes, fds: Sequence[int]) -> None:
    rights = []
    if fds:
        packed = b"".join([_INT.pack(fd) for fd in fds])
        rights.append((_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed))
    while True:
        try:
            sock.sendmsg([data], rights)
        except ConnectionResetError:
            # The peer has closed without reading all messages; the next call raises EPIPE.
            continue
        return


def receive(sock: _socket.socket) -> Message | None:
    """Return the next message; None if the peer has closed and all its messages were received.

    Raises `BlockingIOError` if no message is available, and `ProtocolError`.
    """
    received = _receive(sock)
    if received is None:
        return None
    data, fds, cut = received
    try:
        if data == _BIG:
            data = _read_big(fds, cut=cut)
        return _decode(data, fds, cut=cut)
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def _receive(sock: _socket.socket) -> tuple[bytes, list[int], bool] | None:
    """Return the next datagram, its descriptors, and whether some are missing; None at the end."""
    space = _socket.CMSG_SPACE((DESCRIPTORS_MAX + 1) * _INT.size)
    try:
        data, passed, flags, _ = sock.recvmsg(DATAGRAM_BYTES, space, _CLOEXEC)
    except ConnectionResetError:
        if _is_datagram(sock):
            return None
        # The peer has closed without reading all messages. Its own messages can still be received.
        data, passed, flags, _ = sock.recvmsg(DATAGRAM_BYTES, space, _CLOEXEC)
    if not data:
        return None
    fds: list[int] = []
    for level, kind, content in passed:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            whole = len(content) - len(content) % _INT.size
            fds.extend(fd for (fd,) in _INT.iter_unpack(content[:whole]))
    if not _CLOEXEC:
        for fd in fds:
            os.set_inheritable(fd, False)
    return data, fds, bool(flags & _socket.MSG_CTRUNC)


def _is_datagram(sock: _socket.socket) -> bool:
    return sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_TYPE) == _socket.SOCK_DGRAM


def _read_big(fds: list[int], *, cut: bool) -> bytes:
    if cut or not fds:
        raise ProtocolError("the file of a long message was lost: too many open descriptors")
    file = fds.pop()
    try:
        with mmap.mmap(file, 0, prot=mmap.PROT_READ) as view:
            return view[:]
    finally:
        os.close(file)


def _decode(data: bytes, fds: list[int], *, cut: bool) -> Message:
    try:
        version, kind, *fields = marshal.loads(data)  # noqa: S302  from the other half of acpterm
    except (ValueError, EOFError, TypeError) as error:
        raise ProtocolError(f"not a message: {data[:40]!r}") from error
    if version != VERSION:
        raise ProtocolError(f"protocol version {version!r}: this side speaks version {VERSION}")
    return Message(kind, tuple(fields), fds, cut=cut)


def unlinked_file(name: str) -> int:
    """Open an empty file that is in no directory, in memory if possible; `name` shows in /proc."""
    if sys.platform == "linux" and hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    import tempfile  # noqa: PLC0415  only where there is no memfd

    fd, path = tempfile.mkstemp(prefix=name)
    os.unlink(path)
    return fd
