"""Startup of the keeper process, whose arguments are one of these.

    embedded SOCKET PARENT_PID                     a child of its worker, and exits with it
    supervise SOCKET WORKER_PID -- COMMAND…        the daemon's main process; see `supervisor`

SOCKET is the number of the inherited descriptor of the connection to the (first) worker.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import _socket
import contextlib
import gc
import os
import resource
import sys

from acpterm.keeper.process.loop import Loop
from acpterm.keeper.programs import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def main(args: Sequence[str]) -> NoReturn:
    """Run a keeper and exit with its status."""
    sock = _socket.socket(fileno=int(args[1]))
    open_files = prepare_process()
    loop = Loop()
    if args[0] == "embedded":
        from acpterm.keeper.process.embedded import Embedded  # noqa: PLC0415  only one of the two is needed

        sys.exit(Embedded(loop, sock, parent=int(args[2])).run())
    from acpterm.keeper.process.supervisor import Supervisor  # noqa: PLC0415  as above

    command = list(args[args.index("--") + 1 :])
    supervisor = Supervisor(
        loop, sock, first_worker=int(args[2]), command=command, open_files=open_files
    )
    sys.exit(supervisor.run())


def prepare_process() -> tuple[int, int]:
    """Set up signals, limits and memory of this process.

    Raises the soft limit of open files to the hard limit, and returns the limit before that.
    """
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
    # The keeper creates no reference cycles, and a collection writes to pages that forked children
    # share.
    gc.disable()
    gc.freeze()
    return soft, hard


def _open_standard_fds() -> None:
    """Open 0, 1 and 2 if they are closed; otherwise a PTY would get one of these numbers."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(fd)
