"""One worker process, as its keeper sees it.

States: *starting*; *restoring* once it said `hello` and was sent the state; *ready* once it said
so; *serving* from `go` on; *gone* once the process was reaped and what it had sent was received.

A worker whose connection is closed while it lives cannot serve any more. It has
`CLOSED_TIMEOUT_S` to end by itself, with a status of its own, and is killed then.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import os
import resource
import sys

from acpterm.keeper import protocol
from acpterm.keeper.process.link import Link
from acpterm.keeper.programs import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Sequence

    from acpterm.keeper.process.loop import Loop

KEEPER_FD_VARIABLE = "ACPTERM_KEEPER_FD"
# What means something to the keeper alone.
_NOT_PASSED_ON = (
    "FDSTORE",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
)
_RETRY_S = 0.02
CLOSED_TIMEOUT_S = 3.0


class Worker:
    """A worker process that runs. `gone` is called with its wait status, once."""

    def __init__(
        self,
        loop: Loop,
        pid: int,
        sock: _socket.socket,
        *,
        receive: Callable[[Worker, protocol.Message], None],
        gone: Callable[[Worker, int], None],
    ) -> None:
        self._loop = loop
        self._gone = gone
        self.pid = pid
        self.said_hello = False
        self.is_ready = False
        self.refusal: str | None = None
        """What it does instead of taking over, if it has said so: `refuses: …`."""
        self.ended = False
        self.link = Link(loop, sock, lambda message: receive(self, message), self._lost)
        self._pidfd = system.open_pidfd(pid)
        if self._pidfd is not None:
            loop.add_reader(self._pidfd, self.look)

    def look(self) -> None:
        """Reap the process if it has ended. To be called at SIGCHLD; can be repeated."""
        if self.ended:
            return
        try:
            reaped, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            reaped, status = self.pid, 0
        if not reaped:
            # Not over, or held by a debugger although its pidfd is readable.
            if self._pidfd is not None:
                self._close_pidfd()
                self._loop.call_later(_RETRY_S, self._look_again)
            return
        self.ended = True
        self._close_pidfd()
        # What it sent before it died is still to be done.
        self.link.drain()
        self.link.close()
        self._gone(self, status)

    def signal(self, number: int) -> None:
        """Send the process a signal, unless it was reaped."""
        if not self.ended:
            os.kill(self.pid, number)

    def is_stopped(self) -> bool:
        """Return whether the process is stopped, or has ended."""
        if sys.platform == "darwin":
            return self.ended  # Python has no waitid there before 3.13.
        options = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self.ended or os.waitid(os.P_PID, self.pid, options) is not None

    def _look_again(self) -> None:
        self.look()
        if not self.ended:
            self._loop.call_later(_RETRY_S, self._look_again)

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _lost(self, _reason: str) -> None:
        self._loop.call_later(CLOSED_TIMEOUT_S, lambda: self.signal(_signal.SIGKILL))


def start_worker(
    command: Sequence[str], open_files: tuple[int, int], *, nohup: bool
) -> tuple[int, _socket.socket]:
    """Start a worker process: its pid, and this side's end of the connection. Raises `OSError`.

    `open_files` is the worker's limit; `nohup`: whether it ignores SIGHUP.
    """
    ours, theirs = protocol.pair()
    try:
        env = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
        env[KEEPER_FD_VARIABLE] = str(theirs.fileno())
        defaults = set(_signal.valid_signals())
        if nohup:
            defaults.discard(_signal.SIGHUP)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        os.set_inheritable(theirs.fileno(), True)
        resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
        try:
            # Linux shares processors out by session: the worker has a share of its own.
            pid = os.posix_spawnp(
                command[0],
                list(command),
                env,
                setsid=system.LINUX,
                setsigmask=[],
                setsigdef=defaults,
            )
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return pid, ours
