"""One worker process, as its keeper sees it.

States: *starting*; *restoring* once it has sent `hello` and was sent the state (all terminals and
stored entries); *ready* once it has sent `ready`; *serving* once it was sent `go`; *ended* once the
process was reaped.

A worker whose socket closes while the process lives cannot serve any more. It gets
`CLOSED_TIMEOUT_S` seconds to exit by itself; then it is killed.
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


# Variables that concern the keeper and are not passed on to workers.
_KEEPER_ONLY_VARIABLES = (
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
    """A running worker process; `gone` is called once, after its last message."""

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
        self.hello_received = False
        self.is_ready = False
        self.refusal: str | None = None  # the reason in its message `refuse`
        self.ended = False
        self.link = Link(loop, sock, lambda message: receive(self, message), self._on_lost)
        self._pidfd = system.open_pidfd(pid)
        if self._pidfd is not None:
            loop.add_reader(self._pidfd, self.check)

    def check(self) -> None:
        """Reap the process if it has exited. Must be called at each SIGCHLD; idempotent."""
        if self.ended:
            return
        try:
            reaped, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            reaped, status = self.pid, 0
        if not reaped:
            # The process runs; or a debugger traces it, which makes its pidfd readable before this
            # process can reap it.
            if self._pidfd is not None:
                self._close_pidfd()
                self._loop.call_later(_RETRY_S, self._check_again)
            return
        self.ended = True
        self._close_pidfd()
        # Handle the messages that the worker sent before it died.
        self.link.drain()
        self.link.close()
        self._gone(self, status)

    def signal(self, number: int) -> None:
        if not self.ended:
            os.kill(self.pid, number)

    def is_stopped(self) -> bool:
        """Return whether the process is stopped (on macOS, only whether it has exited)."""
        if sys.platform == "darwin":
            return self.ended  # Python has no waitid on macOS before 3.13.
        options = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self.ended or os.waitid(os.P_PID, self.pid, options) is not None

    def _check_again(self) -> None:
        self.check()
        if not self.ended:
            self._loop.call_later(_RETRY_S, self._check_again)

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _on_lost(self, _reason: str) -> None:
        self._loop.call_later(CLOSED_TIMEOUT_S, lambda: self.signal(_signal.SIGKILL))


def start_worker(
    command: Sequence[str], open_files: tuple[int, int], *, nohup: bool
) -> tuple[int, _socket.socket]:
    """Start a worker; return its pid and the keeper's end of the socket. Raises `OSError`."""
    keeper_end, worker_end = protocol.socket_pair()
    try:
        env = {
            name: value for name, value in os.environ.items() if name not in _KEEPER_ONLY_VARIABLES
        }
        env[protocol.KEEPER_FD_VARIABLE] = str(worker_end.fileno())
        defaults = set(_signal.valid_signals())
        if nohup:
            defaults.discard(_signal.SIGHUP)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        os.set_inheritable(worker_end.fileno(), True)
        resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
        try:
            # With autogroups, Linux schedules each session as one unit. A session of its own keeps
            # the worker from sharing CPU time with the keeper.
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
        keeper_end.close()
        raise
    finally:
        worker_end.close()
    return pid, keeper_end
