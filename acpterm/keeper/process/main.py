"""The start of the keeper process.

    embedded SOCKET PARENT_PID                     a child of its worker, which it does not outlive
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
    """Prepare this process: no signal ends it by surprise, and it may open all it can.

    Return the limit of open files as it was before.
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
    # Nothing here makes cycles; a collection would only write to pages that children share.
    gc.disable()
    gc.freeze()
    return soft, hard


def _open_standard_fds() -> None:
    """Open 0, 1 and 2 where they are closed, or a PTY would get such a number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(fd)
