"""All terminals of one daemon: makes them, runs them, knows them by id, ends them.

Who owns what: the pool's nursery, `run`, has one task per terminal, from `create` until the
terminal is gone. A terminal leaves the pool's books when it is released; one that is to stay
readable is kept by whoever wants to read it. Ids are drawn at random from 2**128 and so are
neither guessed nor drawn again.

The unhappy order: `create` before `run` has begun, or after it has ended, is an error of the
caller. Once `shut_down` was called nothing is created. When `run` is cancelled every terminal is
killed without grace.
"""

import math
import os
from typing import Final

import structlog
import trio

from acpterm.pty.forkclient import ForkServer
from acpterm.pty.prefork import Prefork
from acpterm.pty.spawn import MakeProgram, Spawner, ThreadSpawner
from acpterm.pty.trees import Trees
from acpterm.terminal.floods import Floods
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal

MIB: Final = 1024 * 1024
# Descriptors that terminals leave free: without any, processes cannot even be looked at and killed.
_SPARE: Final = 16
_log = structlog.get_logger("acpterm.pool")
_SHUT_DOWN: Final = "acpterm is shutting down: no terminal is created any more"


class ShutDownError(Exception):
    """The pool creates no more terminals."""


class Pool:
    """The terminals of one daemon.

    `grace`: seconds that a killed tree has to tidy up. `trees` knows its terminals' processes, and
    is run by its owner. `spawner`: `forkserver`, `thread`, or `auto` for the first of them that
    works. `pidfds` False has children waited for by threads, as where there are no pidfds.
    """

    def __init__(
        self,
        trees: Trees,
        *,
        grace: float = 2.0,
        spawner: str = "auto",
        pidfds: bool = True,
    ) -> None:
        self.terminals: Final[dict[str, Terminal]] = {}
        self.floods: Final = Floods()
        self._grace = grace
        self._server = ForkServer()
        threads = ThreadSpawner(trees.new, pidfds=pidfds)
        self._spawner: Spawner = threads
        self._prefork: Prefork | None = None
        if spawner == "forkserver" or (spawner == "auto" and pidfds):
            fallback = threads if spawner == "auto" else None
            self._prefork = Prefork(self._server, trees.new, fallback, pidfds=pidfds)
            self._spawner = self._prefork
        trees.exclude(self._children, self._spawner.unknown)
        self._nursery: trio.Nursery | None = None
        self._running: set[Terminal] = set()
        self._closing = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Supervise terminals until cancelled; then kill those that are left."""
        async with self._server, trio.open_nursery() as nursery:
            if self._prefork is not None:
                nursery.start_soon(self._prefork.run)
            try:
                async with trio.open_nursery() as self._nursery:
                    task_status.started()
                    await trio.sleep_forever()
            finally:
                self._nursery = None

    async def create(
        self,
        make_program: MakeProgram,
        *,
        size: tuple[int, int] = (120, 40),
        limit: int = MIB,
        ring_size: int = MIB,
        lifetime: float = math.inf,
        view: str = "text",
    ) -> Terminal:
        """Start a program on a new terminal of `size` (columns, rows).

        `make_program` is given the terminal's id, for the program's environment. `limit`: bytes of
        text to keep; `ring_size`: bytes of raw output; `lifetime`: seconds until it is killed;
        `view`: what its creator wants to see of it, `text`, `raw` or `screen`.
        A program that cannot be found or run is a terminal that says so and ends with 127 or 126.
        Raises `OSError` when the machine has no PTY, process or descriptor left, `ShutDownError`
        after `shut_down`. Cancelled, it leaves nothing running.
        """
        if self._closing or self._nursery is None:
            raise ShutDownError(_SHUT_DOWN)
        _check_spare()
        child = await self._spawner.spawn(make_program, *size)
        terminal = Terminal(child, size=size, limit=limit, ring_size=ring_size, view=view)
        self.terminals[terminal.id] = terminal
        self._running.add(terminal)
        if self._has_ended():
            self.release(terminal, EndedBy.DISCONNECT)
            with trio.CancelScope() as scope:
                scope.cancel()
                await self._run(terminal, lifetime)
            raise ShutDownError(_SHUT_DOWN)
        self._nursery.start_soon(self._run, terminal, lifetime)
        if self._has_closed():
            self.release(terminal, EndedBy.DISCONNECT)
        return terminal

    def _has_closed(self) -> bool:
        return self._closing

    def _has_ended(self) -> bool:
        return self._nursery is None

    def release(self, terminal: Terminal, by: EndedBy) -> None:
        """Take `terminal` from the books and begin to end what is left of it. Can be repeated."""
        self.terminals.pop(terminal.id, None)
        terminal.release(by)

    async def shut_down(self, deadline: float) -> None:
        """Release every terminal and wait, at most `deadline` seconds, until all are gone."""
        self._closing = True
        for terminal in list(self.terminals.values()):
            self.release(terminal, EndedBy.DISCONNECT)
        with trio.move_on_after(deadline):
            for terminal in list(self._running):
                await terminal.wait_gone()

    async def _run(self, terminal: Terminal, lifetime: float) -> None:
        try:
            await terminal.run(grace=self._grace, lifetime=lifetime, floods=self.floods)
        except* Exception as errors:  # noqa: BLE001  a bug met by one terminal costs the others nothing
            # By now it is ended, with no grace.
            _log.error("a terminal failed", terminal=terminal.id, exc_info=errors)
        finally:
            self._running.discard(terminal)

    def _children(self) -> list[int]:
        """Give the children of this process that somebody here waits for."""
        terminals = (terminal.pid for terminal in self._running)
        pids = [self._server.pid, *self._spawner.waiting(), *terminals]
        return [pid for pid in pids if pid is not None]


def _check_spare() -> None:
    """Raise `OSError` (EMFILE) unless `_SPARE` more descriptors could be opened."""
    spare = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while len(spare) < _SPARE:
            spare.append(os.dup(spare[0]))
    finally:
        for fd in spare:
            os.close(fd)
