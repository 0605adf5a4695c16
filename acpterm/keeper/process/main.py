"""Startup of the keeper process, and the embedded keeper.

The process is started by one of these commands (without `-S` on systems other than Linux):

    python -I -S …/keeper/__main__.py embedded SOCKET PARENT_PID
    python -I -S …/keeper/__main__.py supervise SOCKET WORKER_PID -- COMMAND…

`embedded` runs a keeper that is the child of its worker, and exits with the worker. `supervise`
runs a daemon's main process (see `supervisor`), which starts later workers with COMMAND. SOCKET is
the number of the inherited descriptor of the socket to the (first) worker.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import _socket
import contextlib
import gc
import os
import resource
import sys

from acpterm.keeper.process.keeper import Keeper
from acpterm.keeper.process.link import Link
from acpterm.keeper.process.loop import Loop
from acpterm.keeper.programs import system
from acpterm.keeper.programs.shutdown import end_programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from acpterm.keeper.protocol import Message

_PARENT_CHECK_S = 1.0


def main(args: Sequence[str]) -> NoReturn:
    sock = _socket.socket(fileno=int(args[1]))
    open_files = prepare_process()
    loop = Loop()
    if args[0] == "embedded":
        sys.exit(Embedded(loop, sock, parent=int(args[2])).run())
    from acpterm.keeper.process.supervisor import Supervisor  # noqa: PLC0415  not needed above

    command = list(args[args.index("--") + 1 :])
    supervisor = Supervisor(
        loop, sock, first_worker=int(args[2]), command=command, open_files=open_files
    )
    sys.exit(supervisor.run())


def prepare_process() -> tuple[int, int]:
    """Set up signals, limits and memory; return the soft and hard limit of open files."""
    _open_standard_fds()
    for number in (_signal.SIGPIPE, _signal.SIGTTOU, _signal.SIGTTIN, _signal.SIGTSTP):
        _signal.signal(number, _signal.SIG_IGN)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    system.protect_memory()
    system.become_subreaper()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # The keeper creates no reference cycles. A garbage collection would write to memory pages that
    # forked children share.
    gc.disable()
    gc.freeze()
    return soft, hard


def _open_standard_fds() -> None:
    # Otherwise, a PTY could get one of these numbers and be used as stdin, stdout or stderr.
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(fd)


class Embedded:
    """A keeper that is the child of its worker, which decides when it exits: no signal does."""

    def __init__(self, loop: Loop, sock: _socket.socket, *, parent: int) -> None:
        self._loop = loop
        self._parent = parent
        self._keeper = Keeper(loop, embedded=True)
        self._link = Link(loop, sock, self._receive, self._on_lost)
        for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT):
            _signal.signal(number, _signal.SIG_IGN)
        self._watch_parent()

    def run(self) -> int:
        """Serve until the worker ends, closes its socket or sends `end`; then kill all programs."""
        self._loop.run(self._keeper.before_wait)
        end_programs(self._keeper.terminals)
        return 0

    def _watch_parent(self) -> None:
        # Watching the socket is not enough: it stays connected while another process has the
        # worker's end.
        pidfd = system.open_pidfd(self._parent)
        if os.getppid() != self._parent:
            self._loop.stop()
        elif pidfd is not None:
            self._loop.add_reader(pidfd, self._loop.stop)
        else:
            self._loop.call_later(_PARENT_CHECK_S, self._watch_parent)

    def _receive(self, message: Message) -> None:
        if message.kind == "hello":
            self._keeper.send_state(self._link, takeovers=0)
        elif message.kind == "ready":
            self._link.send("go")
        elif message.kind == "restart":
            reason = "this daemon runs inside another process: restart that instead"
            self._link.send("restart_failed", message.fields[0], reason)
        elif message.kind == "end":
            self._loop.stop()
        else:
            self._keeper.receive(message)

    def _on_lost(self, _reason: str) -> None:
        self._loop.stop()
