"""All terminals of one worker: creating, adopting, running, ending and finding them.

Ownership: the pool's nursery, `run`, has one task per terminal, from `create` until the terminal is
closed. The keeper owns the programs. The pool drops a terminal when it is released; the keeper
keeps its output while it is `retained`, until `forget`. Ids are random numbers of 128 bits, so they
can be neither guessed nor repeated.

`create` before `run` has begun, or after it has ended, raises `ShutDownError`, as it does after
`shut_down`. When `run` is cancelled, every terminal is killed without grace. When the keeper is
lost, all running terminals are ended and reported as lost.
"""

import math
import os
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import structlog
import trio

from acpterm.keeper.client import Found, KeeperClient, Spawned
from acpterm.pty.program import Program
from acpterm.pty.tracking.tree import ProcessTree
from acpterm.pty.tracking.trees import Trees
from acpterm.terminal.consumer import Turns
from acpterm.terminal.shared_ring import WINDOW_BYTES, SharedRing
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal, open_master
from acpterm.terminal.vt import emulator

MIB: Final = 1024 * 1024
# Descriptors that a new terminal needs: ring, master, and those for mapping. A reserve for other
# purposes is in `runtime.descriptors`.
_SPARE_DESCRIPTORS: Final = 4
# For ending a child whose terminal was not returned.
_DISCARD_TIMEOUT_S: Final = 1.0
_log = structlog.get_logger("acpterm.pool")
_SHUT_DOWN: Final = "acpterm is shutting down: no terminal is created any more"


class TerminalSpec(NamedTuple):
    """The parameters of a terminal."""

    size: tuple[int, int] = (120, 40)
    """Columns and rows."""
    limit: int = MIB
    """Bytes of text to retain."""
    ring_size: int = MIB
    """Bytes of raw output to retain."""
    lifetime: float = math.inf
    """Seconds until the program is killed."""
    view: str = "text"
    """The view that its creator reads: `text`, `raw` or `screen`."""
    created_time: float | None = None
    """The time of creation, in seconds since 1970; None for now."""
    started_at: float | None = None
    """The same on the clock since boot (`pty.processes.now`); None for now."""
    ended_by: EndedBy | None = None
    """Who had begun to end the program before a takeover; None for no one."""


class ShutDownError(Exception):
    """The pool creates no more terminals."""


def _nothing(_: Terminal) -> None:
    pass


class Pool:
    """The terminals of one worker.

    `keeper` spawns and owns the programs; `trees` tracks their processes. The caller runs both.
    `grace`: seconds between SIGTERM and SIGKILL. `on_exit` is called with each terminal whose
    program has exited.
    """

    def __init__(
        self,
        keeper: KeeperClient,
        trees: Trees,
        *,
        grace: float = 2.0,
        on_exit: Callable[[Terminal], None] = _nothing,
    ) -> None:
        self.terminals: Final[dict[str, Terminal]] = {}
        self._keeper: Final = keeper
        self._trees: Final = trees
        self._grace = grace
        self._on_exit: Final = on_exit
        self._turns: Final = Turns()
        self._nursery: trio.Nursery | None = None
        self._running: set[Terminal] = set()
        self._closing = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Supervise terminals until cancelled; then kill the remaining ones."""
        emulator.preload()
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None

    async def create(
        self,
        program: Program,
        *,
        size: tuple[int, int] = (120, 40),
        limit: int = MIB,
        ring_size: int = MIB,
        lifetime: float = math.inf,
        view: str = "text",
        record: bytes = b"",
    ) -> Terminal:
        """Start a program on a new terminal; see `TerminalSpec`.

        The id of the terminal is added to the program's environment. `record` is what a successor
        of this process has to know of the terminal: the keeper stores it together with the spawn.

        A program that cannot be found or run is no error: the terminal prints a message, and exits
        with 127 or 126. Raises `OSError` when the system has no PTY, process or descriptor left,
        and `ShutDownError` after `shut_down`. Cancelled, it leaves nothing running.
        """
        if self._closing or self._nursery is None:
            raise ShutDownError(_SHUT_DOWN)
        _check_descriptors()
        spec = TerminalSpec(size, limit, ring_size, lifetime, view)
        name = f"term_{secrets.token_hex(16)}"
        tree = self._trees.new(name)
        tree.begins()
        try:
            program = program.marked(tree.environment, tree.rlimits)
            terminal = await self._keeper.spawn(
                name,
                program,
                cols=size[0],
                rows=size[1],
                ring_size=ring_size + WINDOW_BYTES,
                record=record,
                cgroup=tree.cgroup,
                make=partial(self._start, tree, spec),
            )
        except BaseException:
            await _discard(tree)
            raise
        assert isinstance(terminal, Terminal)  # noqa: S101  it is what `make` returned
        if terminal.released:
            raise ShutDownError(_SHUT_DOWN)
        return terminal

    def adopt(self, found: Found, tree: ProcessTree, spec: TerminalSpec) -> Terminal:
        """Take over a terminal that was created under an earlier worker.

        Its text and screen are rebuilt from the output that the ring retains.
        """
        spawned = Spawned(found.name, found.pid, found.started, found.master, found.ring, "adopted")
        terminal = self._make(spawned, tree, spec, adopted=True)
        self._keeper.watch(found.name, terminal)
        self._supervise(terminal, spec.lifetime)
        if found.exit is not None:
            terminal.exited(found.exit)
        if found.closed_end is not None:
            terminal.closed(found.closed_end)
        return terminal

    def release(self, terminal: Terminal, by: EndedBy) -> None:
        """Drop `terminal`, and begin to end what is left of it. Can be repeated."""
        self.terminals.pop(terminal.id, None)
        terminal.release(by)
        if terminal.is_closed and not terminal.retained:
            self._keeper.forget(terminal.id)

    def forget(self, terminal: Terminal) -> None:
        """Have the keeper drop the output of a released terminal, now or once it is closed."""
        terminal.retained = False
        if terminal.is_closed:
            self._keeper.forget(terminal.id)

    async def shut_down(self, timeout_s: float) -> None:
        """Release every terminal, and wait at most `timeout_s` until all are closed."""
        self._closing = True
        for terminal in list(self.terminals.values()):
            self.release(terminal, EndedBy.DISCONNECT)
        with trio.move_on_after(timeout_s):
            for terminal in list(self._running):
                await terminal.wait_closed()

    def lose_keeper(self) -> None:
        """End all running terminals: the keeper is lost, and with it every exit status."""
        self._closing = True
        for terminal in list(self._running):
            terminal.lost()

    def _start(self, tree: ProcessTree, spec: TerminalSpec, spawned: Spawned) -> Terminal:
        terminal = self._make(spawned, tree, spec, adopted=False)
        tree.started(spawned.pid, spawned.started)
        self._supervise(terminal, spec.lifetime)
        if self._closing:
            self.release(terminal, EndedBy.DISCONNECT)
        return terminal

    def _make(
        self, spawned: Spawned, tree: ProcessTree, spec: TerminalSpec, *, adopted: bool
    ) -> Terminal:
        try:
            ring = SharedRing(
                spawned.ring,
                spec.ring_size,
                arm=partial(self._keeper.arm, spawned.name),
                on_room=self._keeper.kick,
                adopted=adopted,
            )
        finally:
            os.close(spawned.ring)
        terminal = Terminal(
            spawned.name,
            spawned.pid,
            keeper=self._keeper,
            master=open_master(spawned.pid, spawned.master),
            ring=ring,
            tree=tree,
            turns=self._turns,
            size=spec.size,
            limit=spec.limit,
            view=spec.view,
            created_time=spec.created_time,
            started_at=spec.started_at,
            on_exit=self._on_exit,
        )
        if spec.ended_by is not None:
            terminal.kill(spec.ended_by)
        self.terminals[terminal.id] = terminal
        self._running.add(terminal)
        return terminal

    def _supervise(self, terminal: Terminal, lifetime: float) -> None:
        assert self._nursery is not None  # noqa: S101  checked by the callers
        self._nursery.start_soon(self._run, terminal, lifetime)

    async def _run(self, terminal: Terminal, lifetime: float) -> None:
        try:
            await terminal.run(grace=self._grace, lifetime=lifetime)
        except* Exception as errors:  # noqa: BLE001  a bug met by one terminal costs the others nothing
            # `Terminal.run` has killed the program without grace.
            _log.error("a terminal failed", terminal=terminal.id, exc_info=errors)
        finally:
            self._running.discard(terminal)
            if terminal.released and not terminal.retained:
                self._keeper.forget(terminal.id)


async def _discard(tree: ProcessTree) -> None:
    """End and forget a tree whose terminal was not returned."""
    with trio.CancelScope(shield=True):
        with trio.move_on_after(_DISCARD_TIMEOUT_S):
            await tree.kill()
        await tree.close()


def _check_descriptors() -> None:
    """Raise `OSError` (EMFILE) unless `_SPARE_DESCRIPTORS` more descriptors can be opened."""
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while len(opened) < _SPARE_DESCRIPTORS:
            opened.append(os.dup(opened[0]))
    finally:
        for fd in opened:
            os.close(fd)
