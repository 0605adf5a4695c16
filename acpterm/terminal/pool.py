"""All terminals of one worker: creating, adopting, running, ending and finding them.

`run` has one task per terminal, from `create` until the terminal is closed. The keeper owns the
programs. The pool drops a terminal as soon as it is released. The keeper drops the output of a
released terminal once it is closed; if `Terminal.retained` is true, not before `forget`. A
terminal's id contains a random number of 128 bits, so ids can be neither guessed nor repeated.

When `run` is cancelled, the processes of all terminals are killed without grace. When the keeper
dies, all running terminals are ended; programs whose exit it had not reported get `EndedBy.LOST`.
"""

import os
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog
import trio

from acpterm.keeper.client import KeeperClient
from acpterm.keeper.reports import Found, Spawned
from acpterm.pty.limits import NO_LIMITS, ResourceLimits, rlimits
from acpterm.pty.master import Master
from acpterm.pty.program import Program
from acpterm.pty.tracking.cgroup_limits import Enforcement
from acpterm.pty.tracking.tree import ProcessTree
from acpterm.pty.tracking.trees import Trees
from acpterm.runtime.descriptors import check_available
from acpterm.terminal.consumer import Turns
from acpterm.terminal.shared_ring import WINDOW_BYTES, SharedRing
from acpterm.terminal.spec import TerminalSpec
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal
from acpterm.terminal.vt import emulator

# The number of descriptors that a new terminal needs: ring, master, and two more while the ring is
# mapped. `runtime.descriptors` reserves descriptors for other purposes.
_SPARE_DESCRIPTORS: Final = 4
# How long to wait for the end of the processes of a terminal that `create` failed to return.
_DISCARD_TIMEOUT_S: Final = 1.0
_log = structlog.get_logger("acpterm.pool")
_SHUT_DOWN: Final = "acpterm is shutting down: no terminal is created any more"


class ShutDownError(Exception):
    """`create` was called while the pool does not run, or after it was shut down."""


class Pool:
    """The terminals of one worker; `terminals` has those that are not released, by id."""

    def __init__(
        self,
        keeper: KeeperClient,
        trees: Trees,
        *,
        grace: float = 2.0,
        on_exit: Callable[[Terminal], object] = lambda _: None,
    ) -> None:
        self.terminals: Final[dict[str, Terminal]] = {}
        self._keeper: Final = keeper
        self._trees: Final = trees
        self._grace = grace
        self._on_exit: Final = on_exit
        self._turns: Final = Turns()
        self._nursery: trio.Nursery | None = None
        self._running: set[Terminal] = set()
        # The terminals that are being created, by their ids: an event for the end of `create`.
        self._created: dict[str, trio.Event] = {}
        self._closing = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Supervise terminals until cancelled; then kill the processes of the remaining ones."""
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
        spec: TerminalSpec = TerminalSpec(),  # noqa: B008  it is immutable
        *,
        record: bytes = b"",
        limits: ResourceLimits = NO_LIMITS,
        strict: bool = True,
    ) -> Terminal:
        """Start `program` on a new terminal, and return the terminal.

        `record` is the terminal's state for the next worker, which the keeper stores in the same
        step. If this system cannot enforce one of `limits`: with `strict`, raises `LimitError` and
        starts nothing; otherwise lists it in the terminal's `enforcement`.

        If the program cannot be found or run, the terminal prints a message, and its program exits
        with 127 or 126. Raises `OSError` if the system has no PTY, process or descriptor left,
        `ShutDownError` and `KeeperLostError`. If cancelled, no process keeps running.
        """
        if self._closing or self._nursery is None:
            raise ShutDownError(_SHUT_DOWN)
        check_available(_SPARE_DESCRIPTORS)
        name = f"term_{secrets.token_hex(16)}"
        tree = self._trees.new(name)
        tree.begins()
        self._created[name] = trio.Event()
        try:
            enforcement = self._trees.enforce(name, limits)
            if enforcement is not None:
                _report_unenforced(name, enforcement, strict=strict)
                more = rlimits(limits, program.rlimits)
                program = program._replace(rlimits=(*program.rlimits, *more))
            program = program.marked(tree.environment, tree.rlimits)
            terminal = await self._keeper.spawn(
                name,
                program,
                cols=spec.size[0],
                rows=spec.size[1],
                ring_size=spec.ring_size + WINDOW_BYTES,
                record=record,
                encoding=spec.encoding,
                cgroup=tree.cgroup,
                make=partial(self._start, tree, spec, enforcement),
            )
        except BaseException:
            await _discard(tree)
            raise
        finally:
            self._created.pop(name).set()
        assert isinstance(terminal, Terminal)  # noqa: S101  it is what `make` returned
        if terminal.released:
            raise ShutDownError(_SHUT_DOWN)
        return terminal

    async def wait_created(self, name: str) -> None:
        """Wait while `create` is creating the terminal with the id `name`."""
        # Then its caller has also run up to its next checkpoint.
        if (created := self._created.get(name)) is not None:
            await created.wait()

    def adopt(
        self,
        found: Found,
        tree: ProcessTree,
        spec: TerminalSpec,
        limits: ResourceLimits = NO_LIMITS,
    ) -> Terminal:
        """Return a `Terminal` for a terminal of an earlier worker.

        Text and screen are rebuilt from the retained output, and `limits` set again. Raises
        `OSError` or `RingError` if the ring cannot be mapped.
        """
        pty = found.master, found.ring, "adopted", found.session
        spawned = Spawned(found.name, found.pid, found.started, *pty)
        enforcement = self._trees.enforce_again(found.name, limits)
        terminal = self._make(spawned, tree, spec, enforcement, adopted=True)
        self._keeper.watch(found.name, terminal)
        self._supervise(terminal)
        if found.exit is not None:
            terminal.exited(found.exit)
        if found.closed_end is not None:
            terminal.closed(found.closed_end)
        return terminal

    def release(self, terminal: Terminal, by: EndedBy) -> None:
        """Remove `terminal` from the pool, and begin to end its processes. Idempotent."""
        self.terminals.pop(terminal.id, None)
        terminal.release(by)
        if terminal.is_closed and not terminal.retained:
            self._keeper.forget(terminal.id)

    def forget(self, terminal: Terminal) -> None:
        """Make the keeper drop a released terminal's output as soon as the terminal is closed."""
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
        """End all running terminals, and create no more, because the keeper has died."""
        self._closing = True
        for terminal in list(self._running):
            terminal.lost()

    def _start(
        self,
        tree: ProcessTree,
        spec: TerminalSpec,
        enforcement: Enforcement | None,
        spawned: Spawned,
    ) -> Terminal:
        terminal = self._make(spawned, tree, spec, enforcement, adopted=False)
        tree.started(spawned.pid, spawned.started, spawned.session)
        self._supervise(terminal)
        if self._closing:
            self.release(terminal, EndedBy.DISCONNECT)
        return terminal

    def _make(
        self,
        spawned: Spawned,
        tree: ProcessTree,
        spec: TerminalSpec,
        enforcement: Enforcement | None,
        *,
        adopted: bool,
    ) -> Terminal:
        master = Master(spawned.master, waits_for_raw=spec.remote is not None)
        try:
            ring = SharedRing(
                spawned.ring,
                spec.ring_size,
                arm=partial(self._keeper.arm, spawned.name),
                on_room=self._keeper.kick,
                adopted=adopted,
            )
            terminal = Terminal(
                spawned,
                spec,
                keeper=self._keeper,
                master=master,
                ring=ring,
                tree=tree,
                turns=self._turns,
                enforcement=enforcement,
                on_exit=self._on_exit,
            )
        except BaseException:
            master.close()
            raise
        finally:
            os.close(spawned.ring)
        if spec.ended_by is not None:
            terminal.kill(spec.ended_by, spec.cause)
        self.terminals[terminal.id] = terminal
        self._running.add(terminal)
        return terminal

    def _supervise(self, terminal: Terminal) -> None:
        assert self._nursery is not None  # noqa: S101  checked by the callers
        self._nursery.start_soon(self._run, terminal)

    async def _run(self, terminal: Terminal) -> None:
        try:
            await terminal.run(grace=self._grace)
        except* Exception as errors:  # noqa: BLE001  a bug in one terminal must not end the others
            # `Terminal.run` has killed the program without grace.
            _log.error("a terminal failed", terminal=terminal.id, exc_info=errors)
        finally:
            self._running.discard(terminal)
            if terminal.released and not terminal.retained:
                self._keeper.forget(terminal.id)


def _report_unenforced(name: str, enforcement: Enforcement, *, strict: bool) -> None:
    if strict and enforcement.unenforced:
        raise enforcement.unenforced[0]
    for error in enforcement.unenforced:
        _log.warning("limit not enforced", terminal=name, limit=error.limit, reason=str(error))


async def _discard(tree: ProcessTree) -> None:
    """Kill the processes of a terminal after a failed or cancelled `create`."""
    with trio.CancelScope(shield=True):
        with trio.move_on_after(_DISCARD_TIMEOUT_S):
            await tree.kill()
        await tree.close()
