"""Spawning: a program, a new PTY, and the child that becomes the one on the other.

Two ways. `prefork.Prefork`: by the fork server, where there is one; `ThreadSpawner`: by
`ptyprocess.spawn`, in a thread, since it waits until the child has become its program. Both run
`child.become`, so that what the program finds is the same: its own session, this controlling
terminal with its size set, default signals, none of our descriptors, the asker's umask, limits,
folder and environment.

Who owns what: the PTY's slave is closed once the child has it; the master, the pidfd and the tree
belong to the `Child` that is given back. When nothing was started, nothing is left open.
"""

import contextlib
import os
import secrets
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import ptyprocess
import trio

from acpterm.pty import linux
from acpterm.pty.child import become, reset_signals
from acpterm.pty.master import Master
from acpterm.pty.program import Program
from acpterm.pty.tree import Tree

# Seconds that it may take to end a child that nobody was told of.
LOST: Final = 1.0
_threads = trio.CapacityLimiter(8)

NewTree: TypeAlias = Callable[[str], Tree]
MakeProgram: TypeAlias = Callable[[str], Program]


class Child:
    """One child on its PTY, running or a zombie until it is reaped."""

    def __init__(self, name: str, pid: int, pidfd: int | None, master: Master, tree: Tree) -> None:
        self.name: Final = name
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

    async def spawn(self, make_program: MakeProgram, cols: int, rows: int) -> Child:
        """Start a program on a new PTY of that size, in a tree of its own.

        `make_program` is given the child's name, which is drawn at random: neither guessed nor
        drawn again. A program that cannot be found or run is a child that says so and ends with
        127 or 126. Raises `OSError` when there is no PTY, process or descriptor to be had.
        Cancelled, it leaves nothing; or the child was made and is given all the same.
        """

    def unknown(self) -> bool:
        """Whether there may be a child just now that nobody has been told of."""

    def waiting(self) -> list[int]:
        """Give the pids of the children that wait to be used."""


class ThreadSpawner:
    """Children from `ptyprocess.spawn` in a thread. `pidfds`: whether to open them, if there."""

    def __init__(self, new_tree: NewTree, *, pidfds: bool = True) -> None:
        self._new_tree = new_tree
        self._pidfds = pidfds and linux.has_pidfd()
        self._spawning = 0

    async def spawn(self, make_program: MakeProgram, cols: int, rows: int) -> Child:
        """See `Spawner`."""
        name = draw_name()
        tree = self._new_tree(name)
        program = make_program(name).marked(tree.environment, tree.rlimits)
        tree.begins()
        self._spawning += 1
        try:
            process = await trio.to_thread.run_sync(
                _spawn, program, cols, rows, tree.join, limiter=_threads
            )
        except BaseException:
            await clear(tree)
            raise
        finally:
            self._spawning -= 1
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
        return Child(name, pid, pidfd, Master(pid, fd), tree)

    def unknown(self) -> bool:
        """See `Spawner`."""
        return self._spawning > 0

    def waiting(self) -> list[int]:
        """See `Spawner`: none is made ahead."""
        return []


def draw_name() -> str:
    """Draw the name of a child, and of its terminal."""
    return f"term_{secrets.token_hex(16)}"


async def clear(tree: Tree) -> None:
    """End and forget a tree whose first child could not be given; takes a second at most."""
    with trio.CancelScope(shield=True):
        with trio.move_on_after(LOST):
            await tree.kill()
        await tree.close()


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
