"""The daemon's end of the fork server: starts it, asks it for children, ends it.

The server is started by the first `fork` and again should it have died. One exchange is under way
at a time (a lock); an exchange takes well under a millisecond of the server's time and is
shielded, since a child that was made must reach its caller. A server that does not answer within
`DEADLINE` seconds is killed. `UnavailableError` says that children have to be made another way on
this machine: the server cannot be started, or its kernel or a filter refuses `clone3`.
"""

import contextlib
import errno
import os
import socket
import subprocess
import sys
from types import TracebackType
from typing import Self

import trio

from acpterm.pty.forkserver import ANSWER, REQUEST

DEADLINE = 10.0
# What clone3 says where there is none, where a filter refuses it, and where it knows no cgroups
# (EINVAL, or E2BIG before Linux 5.7, whose arguments are shorter).
_NO_CLONE3 = (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG)

_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from acpterm.pty.forkserver import main; main(int(sys.argv[2]))"
)
# Where the package `acpterm` lies: the server runs without site-packages, to be small.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class UnavailableError(Exception):
    """No fork server on this machine; the message says why."""


class RefusedError(OSError):
    """The kernel made no process this time; the fork server itself is well."""


class ForkServer:
    """A fork server, as an async context manager: it ends with the block, its children do not."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._lock = trio.Lock()
        self._proven = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with trio.CancelScope(shield=True):
            await self._stop()

    @property
    def pid(self) -> int | None:
        """The server's own pid, which is a child of this process too, while it runs."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the server if it does not run, so that the first `fork` need not.

        Raises `UnavailableError`.
        """
        async with self._lock:
            await self._ensure()

    async def fork(self, slave: int, source: int, cgroup: int | None) -> tuple[int, int | None]:
        """Make a blank on the terminal `slave`: its pid and its pidfd.

        It becomes the program that it reads from the pipe `source` (`program.pack`). There is
        no pidfd when this process has no room for one more descriptor. `slave`, `source` and
        `cgroup` (a cgroup's folder, open) stay the caller's. Raises `UnavailableError`, or
        `RefusedError` when the kernel has no room for one more process (EAGAIN, ENOMEM), or the
        server, which has worked before, was lost in the middle (EIO): the child may have been made.
        A caller that is cancelled while it waits for its turn has made no child; later than that
        the child is made, and given.
        """
        async with self._lock:
            with trio.move_on_after(DEADLINE, shield=True):
                channel = await self._ensure()
                try:
                    return await self._exchange(channel, slave, source, cgroup)
                except RefusedError:
                    raise
                except (OSError, EOFError) as error:
                    await self._stop()
                    raise self._failed(f"the fork server went away: {error}") from error
            await self._stop()
            raise self._failed(f"the fork server did not answer in {DEADLINE:g} s")

    def _failed(self, what: str) -> Exception:
        # One that has worked will work again; but not for this child, which may have been made.
        if self._proven:
            return RefusedError(errno.EIO, f"{what}; try again")
        return UnavailableError(what)

    async def _exchange(self, channel: socket.socket, *fds: int | None) -> tuple[int, int | None]:
        # One exchange at a time, and a request of one byte: the socket always has room for it.
        socket.send_fds(channel, [REQUEST], [fd for fd in fds if fd is not None])
        await trio.lowlevel.wait_readable(channel)
        data, ancillary, _, _ = channel.recvmsg(
            ANSWER.size, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
        )
        if len(data) < ANSWER.size:
            raise EOFError("it closed its socket")
        pid, number = ANSWER.unpack(data)
        self._proven = self._proven or number == 0
        if number in _NO_CLONE3:
            raise UnavailableError(f"clone3 is refused here: {os.strerror(number)}")
        if number:
            raise RefusedError(number, f"no new process: {os.strerror(number)}")
        if not ancillary:
            return pid, None
        return pid, int.from_bytes(ancillary[0][2][:4], sys.byteorder, signed=True)

    async def _ensure(self) -> socket.socket:
        if self._process is not None and self._process.poll() is not None:
            await self._stop()
        if self._channel is None:
            if sys.platform != "linux":
                raise UnavailableError("a fork server needs Linux")
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            try:
                with theirs:
                    self._process = await trio.to_thread.run_sync(_launch, theirs.fileno())
            except OSError as error:
                ours.close()
                raise UnavailableError(f"the fork server cannot be started: {error}") from error
            except BaseException:
                ours.close()
                raise
            self._channel = ours
        return self._channel

    async def _stop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await trio.to_thread.run_sync(process.wait, 1.0)
                return
            process.kill()
            await trio.to_thread.run_sync(process.wait)


def _launch(fd: int) -> subprocess.Popen[bytes]:
    # A session of its own: a Ctrl-C at the terminal that the daemon runs on is not for it.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, _ROOT, str(fd)],
        pass_fds=(fd,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
