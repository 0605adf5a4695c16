"""Spawning: a program, a new PTY, and the child that becomes the one on the other.

By the fork server where there is one; else by `ptyprocess.spawn`, in a thread, since it waits
until the child has become its program. Both run `child.become`, so that what the program finds is
the same: its own session, this controlling terminal with its size set, default signals, none of
our descriptors, the asker's umask, limits, folder and environment.

Who owns what: the PTY's slave is closed here once the child has it; the master, the pidfd and the
tree belong to the `Child` that is given back. When nothing was started, nothing is left open.
"""

import contextlib
import errno
import os
from typing import Protocol

import ptyprocess
import trio

from acpterm.pty import linux
from acpterm.pty.child import Program, become, reset_signals
from acpterm.pty.forkclient import ForkServer, UnavailableError
from acpterm.pty.master import Master, open_pair
from acpterm.pty.tree import Tree

_threads = trio.CapacityLimiter(8)


class Child:
    """One child on its PTY, running or a zombie until it is reaped."""

    def __init__(self, pid: int, pidfd: int | None, master: Master, tree: Tree) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.master = master
        self.tree = tree

    def close_pidfd(self) -> None:
        """Close the descriptor of the process; can be repeated."""
        if self.pidfd is not None:
            trio.lowlevel.notify_closing(self.pidfd)
            os.close(self.pidfd)
            self.pidfd = None


class Spawner(Protocol):
    """A way to make children."""

    async def spawn(self, program: Program, cols: int, rows: int, tree: Tree) -> Child:
        """Start `program` on a new PTY of that size, in `tree`.

        A program that cannot be found or run is a child that says so and ends with 127 or 126.
        Raises `OSError` when there is no PTY, process or descriptor to be had. Cancelled before
        the child is made it leaves nothing; later, the child is given all the same.
        """


class ForkServerSpawner:
    """Children from the fork server; from `fallback` once that turns out not to work here.

    Without a fallback that is an `OSError` (ENOSYS). `pidfds`: whether to give those that come.
    """

    def __init__(
        self, server: ForkServer, fallback: Spawner | None, *, pidfds: bool = True
    ) -> None:
        self._server = server
        self._fallback = fallback
        self._pidfds = pidfds
        self._works = True

    async def spawn(self, program: Program, cols: int, rows: int, tree: Tree) -> Child:
        """See `Spawner`."""
        if self._works:
            master, slave = open_pair(cols, rows)
            try:
                pid, pidfd = await self._server.fork(program, slave, tree.cgroup)
            except UnavailableError as error:
                os.close(master)
                if self._fallback is None:
                    why = f"spawner 'forkserver' does not work here: {error}"
                    raise OSError(errno.ENOSYS, why) from error
                self._works = False
            except BaseException:
                os.close(master)
                raise
            else:
                tree.started(pid)
                if pidfd is not None and not self._pidfds:
                    os.close(pidfd)
                    pidfd = None
                return Child(pid, pidfd, Master(pid, master), tree)
            finally:
                os.close(slave)
        assert self._fallback is not None  # noqa: S101  else it is tried each time
        return await self._fallback.spawn(program, cols, rows, tree)


class ThreadSpawner:
    """Children from `ptyprocess.spawn` in a thread. `pidfds`: whether to open them, if there."""

    def __init__(self, *, pidfds: bool = True) -> None:
        self._pidfds = pidfds and linux.has_pidfd()

    async def spawn(self, program: Program, cols: int, rows: int, tree: Tree) -> Child:
        """See `Spawner`."""
        process = await trio.to_thread.run_sync(
            _spawn, program, cols, rows, tree.join, limiter=_threads
        )
        pid = process.pid
        tree.started(pid)
        # Ours alone: ptyprocess would close its own after sleeping, when it is collected.
        fd = os.dup(process.fd)
        process.fileobj.close()
        process.closed = True
        pidfd = None
        if self._pidfds:
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(pid)
        return Child(pid, pidfd, Master(pid, fd), tree)


def _spawn(program: Program, cols: int, rows: int, join: str | None) -> ptyprocess.PtyProcess:
    def run_in_child() -> None:
        if join is not None:
            with open(join, "w") as group:
                group.write("0")
        reset_signals()
        become(program)

    # `become` never returns, so the program named here is never run; it only has to exist, since
    # ptyprocess looks for it first.
    return ptyprocess.PtyProcess.spawn(
        ["/bin/sh"],
        env=dict(program.env),
        preexec_fn=run_in_child,
        dimensions=(rows, cols),
        pass_fds=(),
    )
