"""Children from the fork server, one of them made ahead.

What takes long in a spawn is all that comes before the program is known: a fork, a session, a
terminal, a control group. So while programs are being started, the next child is made ahead: a
*blank*, which has all these and waits for its program on a pipe.

States of a blank: *made*, by the fork server, in its tree and on its PTY; then *told*, which makes
it the child of whoever asked; or *discarded*, which ends it. One that was made ahead is kept for
`KEPT` seconds after the last spawn: what runs seldom needs no haste, and `ps` tells how long ago a
process was made. One that has ended in the meantime is discarded when it is to be used.

Who owns what: `Prefork` owns the blank that is kept, and the lock under which blanks are made and
taken; from the moment that it is taken the spawn that took it owns it. `run` keeps one ready and
discards it in the end; without `run` each blank is made when it is asked for.
"""

import contextlib
import errno
import math
import os
from typing import Final

import trio

from acpterm.pty.forkclient import ForkServer, RefusedError, UnavailableError
from acpterm.pty.master import Master, open_pair
from acpterm.pty.program import Program, pack
from acpterm.pty.reap import reap, wait_reapable
from acpterm.pty.spawn import LOST, Child, MakeProgram, NewTree, Spawner, clear, draw_name

KEPT: Final = 1.0
# The size of a window until somebody says which.
_COLS, _ROWS = 120, 40
# Seconds that a blank may take to read its program.
_TOLD: Final = 10.0


class Prefork:
    """Children from the fork server; from `fallback` once that turns out not to work here.

    Without a fallback that is an `OSError` (ENOSYS). `pidfds`: whether to give those that come.
    """

    def __init__(
        self,
        server: ForkServer,
        new_tree: NewTree,
        fallback: Spawner | None,
        *,
        pidfds: bool = True,
    ) -> None:
        self._server = server
        self._new_tree = new_tree
        self._fallback = fallback
        self._pidfds = pidfds
        self._works = True
        self._lock = trio.Lock()
        self._making = 0
        self._kept: _Blank | None = None
        self._taken = trio.Event()

    async def run(self) -> None:
        """Start the server, and make blanks ahead while there are spawns; to be cancelled."""
        with contextlib.suppress(UnavailableError, OSError):
            await self._server.start()
        try:
            while True:
                await self._taken.wait()
                with trio.CancelScope() as keeping:
                    while True:
                        self._taken = trio.Event()
                        await self._prepare()
                        keeping.deadline = trio.current_time() + KEPT
                        await self._taken.wait()
                        keeping.deadline = math.inf
                await self._drop()
        finally:
            with trio.CancelScope(shield=True):
                await self._drop()

    async def spawn(self, make_program: MakeProgram, cols: int, rows: int) -> Child:
        """See `Spawner`."""
        if self._works:
            try:
                blank = await self._take()
            except UnavailableError as error:
                if self._fallback is None:
                    why = f"spawner 'forkserver' does not work here: {error}"
                    raise OSError(errno.ENOSYS, why) from error
                self._works = False
            else:
                try:
                    tree = blank.child.tree
                    program = make_program(blank.child.name)
                    program = program.marked(tree.environment, tree.rlimits)
                    return await blank.tell(program, cols, rows)
                except BaseException:
                    await blank.discard()
                    raise
        assert self._fallback is not None  # noqa: S101  else it is tried each time
        return await self._fallback.spawn(make_program, cols, rows)

    def unknown(self) -> bool:
        """See `Spawner`."""
        return self._making > 0 or (self._fallback is not None and self._fallback.unknown())

    def waiting(self) -> list[int]:
        """See `Spawner`."""
        return [] if self._kept is None else [self._kept.child.pid]

    async def _take(self) -> "_Blank":
        async with self._lock:
            blank, self._kept = self._kept, None
            if blank is not None and not blank.is_waiting():
                await blank.discard()
                blank = None
            if blank is None:
                blank = await self._make()
            self._taken.set()
            return blank

    async def _prepare(self) -> None:
        async with self._lock:
            if self._kept is None:
                # If it cannot be had now, the next spawn tries again, and tells.
                with contextlib.suppress(UnavailableError, OSError):
                    self._kept = await self._make()

    async def _drop(self) -> None:
        async with self._lock:
            blank, self._kept = self._kept, None
        # Whoever spawns meanwhile need not wait for its end.
        if blank is not None:
            await blank.discard()

    async def _make(self) -> "_Blank":
        name = draw_name()
        tree = self._new_tree(name)
        self._making += 1
        try:
            with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
                master, slave = open_pair(_COLS, _ROWS)
                ours.callback(os.close, master)
                theirs.callback(os.close, slave)
                source, pipe = os.pipe()
                ours.callback(os.close, pipe)
                theirs.callback(os.close, source)
                pid, pidfd = await self._server.fork(slave, source, tree.cgroup)
                ours.pop_all()
        except BaseException:
            # A fork server that was lost in the middle may have made it.
            await clear(tree)
            raise
        finally:
            self._making -= 1
        tree.started(pid)
        if pidfd is not None and not self._pidfds:
            os.close(pidfd)
            pidfd = None
        return _Blank(Child(name, pid, pidfd, Master(pid, master), tree), pipe)


class _Blank:
    """A child that waits for its program at the other end of `pipe`."""

    def __init__(self, child: Child, pipe: int) -> None:
        self.child: Final = child
        self._pipe: int | None = pipe
        os.set_blocking(pipe, False)

    def is_waiting(self) -> bool:
        """Whether it has not ended meanwhile."""
        try:
            ended = os.waitid(os.P_PID, self.child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # somebody else in this process has waited for all children
            return False
        return ended is None

    async def tell(self, program: Program, cols: int, rows: int) -> Child:
        """Have it become `program`, in a window of that size: the child, which is the caller's.

        Raises `RefusedError` (EIO) when it ends, or does not read, before it knows all. To be
        discarded then, and when this is cancelled.
        """
        assert self._pipe is not None  # noqa: S101  it is told once
        if (cols, rows) != (_COLS, _ROWS):
            self.child.master.resize(cols, rows)
        self.child.tree.begins()
        data = pack(program)
        try:
            told = os.write(self._pipe, data)
            if told < len(data):
                with trio.fail_after(_TOLD):
                    await self._tell(data[told:])
        except (BrokenPipeError, trio.TooSlowError) as error:
            what = "the new process did not hear which program to become; try again"
            raise RefusedError(errno.EIO, what) from error
        self._close()
        return self.child

    async def _tell(self, rest: bytes) -> None:
        assert self._pipe is not None  # noqa: S101  as above
        while rest:
            await trio.lowlevel.wait_writable(self._pipe)
            rest = rest[os.write(self._pipe, rest) :]

    async def discard(self) -> None:
        """End it and close what it has. Cannot be cancelled; takes a second or two at most."""
        with trio.CancelScope(shield=True):
            self._close()
            child = self.child
            child.master.close()
            with trio.move_on_after(LOST):
                await child.tree.kill()
                await wait_reapable(child.pid, child.pidfd)
                with contextlib.suppress(ChildProcessError):
                    reap(child.pid)
            child.tree.reaped()
            child.close_pidfd()
            await child.tree.close()

    def _close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
