"""One terminal: a program on its PTY, its output, and its exit status.

States, in order; none is entered twice:

    running ──program reaped, its output consumed──▶ exited ──tree ended, PTY closed──▶ closed

The flag *released* is independent of these: the pool has dropped the terminal, and the remaining
processes are being ended.

- *running*: the keeper reads the PTY into the ring, and the consumer consumes the ring.
- *exited*: the keeper has drained the PTY and reaped the program, and everything that the program
  wrote is consumed: `exit` is set. Background processes may keep writing.
- *closed*: all processes of the tree have ended and the PTY is closed. The output stays readable.

The keeper reports two events, in this order: the program's exit, with the position at which the
program's output ends; and that no process has the PTY open, with the position at which all output
ends. Each report takes effect once all output before the reported position is consumed.

Ownership: the keeper owns the program's process and the ring file. From the terminal's start to its
end, `run` owns the process tree, the tasks, and this process's duplicate of the PTY's master.
Cancelling `run` kills the tree without grace and closes everything.

If the program is *remote* (runs on another host), the process on the PTY is its *client*, such as
`ssh` (see `remote`).
"""

import contextlib
import math
import signal
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from acpterm.keeper.client import KeeperClient
from acpterm.keeper.reports import UNKNOWN, ExitReport, Spawned
from acpterm.pty import processes
from acpterm.pty.background import NO_BACKGROUND, Background, beside, describe
from acpterm.pty.input_wait.detect import StoppedProcess
from acpterm.pty.limits import Cause
from acpterm.pty.master import Master
from acpterm.pty.signals import decode_status
from acpterm.pty.tracking.cgroup_limits import Enforcement
from acpterm.pty.tracking.tree import ProcessTree, end, wait_empty
from acpterm.terminal.consumer import Consumer, Turns
from acpterm.terminal.keyboard import Keyboard
from acpterm.terminal.remote import RemoteProgram
from acpterm.terminal.shared_ring import SharedRing
from acpterm.terminal.spec import TerminalSpec
from acpterm.terminal.status import EndedBy, ExitStatus
from acpterm.terminal.text.stream import TextView
from acpterm.terminal.timeline import Sample, Timeline
from acpterm.terminal.vt.broken import BrokenEmulator
from acpterm.terminal.vt.emulator import Emulator

# The maximum grace period of a program whose owner has disconnected.
DISCONNECT_GRACE_S: Final = 2.0
# The exit code that is reported if the status is unknown. Agents treat it as a failure.
UNKNOWN_CODE: Final = 255
# If the processes have not ended this long after SIGKILL, the terminal closes all the same, and its
# exit status is unknown.
_KILL_TIMEOUT_S: Final = 5.0
# How long the client (such as ssh) of a program on another host may run on after
# `RemoteProgram.end` has ended the program.
_CLIENT_TIMEOUT_S: Final = 1.0
# How long the client may pass on output after the program on the other host has ended by itself.
_CLIENT_DRAIN_S: Final = 0.25
# How long the PTY has another size to make its program repaint. A program that handles both changes
# at once sees none.
_REPAINT_S: Final = 0.1


class Terminal:
    """A terminal, created and run by `Pool.create` or `Pool.adopt`."""

    # With this many attributes, a dictionary would take 1 KiB more per terminal.
    __slots__ = (
        "_cause",
        "_changed",
        "_closed",
        "_closed_at",
        "_consumer",
        "_early",
        "_ended_by",
        "_ending",
        "_exited",
        "_keeper",
        "_lifetime",
        "_master",
        "_nursery",
        "_on_exit",
        "_output_ended",
        "_pid",
        "_report",
        "_spec",
        "_tree",
        "_unlimited",
        "cols",
        "emulator",
        "enforcement",
        "exit",
        "id",
        "keyboard",
        "limit",
        "released",
        "remote",
        "retained",
        "ring",
        "rows",
        "started",
        "started_at",
        "text",
        "timeline",
        "view",
    )

    def __init__(
        self,
        spawned: Spawned,
        spec: TerminalSpec,
        *,
        keeper: KeeperClient,
        master: Master,
        ring: SharedRing,
        tree: ProcessTree,
        turns: Turns,
        enforcement: Enforcement | None,
        on_exit: "Callable[[Terminal], object]",
    ) -> None:
        size = spec.size
        self.id: Final = spawned.name
        self.limit: Final = spec.limit
        self.view: Final = spec.view
        self._spec: Final = spec
        #: The limits of the terminal's programs; None if they have no limits.
        self.enforcement: Final = enforcement
        self.ring: Final = ring
        self.text: Final = TextView(spec.limit, size=size, truncated=ring.position > 0)
        self.exit: ExitStatus | None = None
        self.released = False
        #: Whether the keeper retains the output after the terminal is released and closed.
        self.retained = False
        self.cols, self.rows = size
        self.keyboard: Final = Keyboard(master, ring.input_mark, self._start)
        self._keeper: Final = keeper
        self._master: Final = master
        self._tree: Final = tree
        self._pid: Final = spawned.pid
        #: The program, if it runs on another host.
        self.remote: Final = spec.remote
        self._nursery: trio.Nursery | None = None
        # Tasks that were requested before `run` was called, which starts them.
        self._early: list[Callable[[], Awaitable[None]]] = []
        boot = processes.now()
        #: When the terminal was created, on the clock since boot (`pty.processes.now`).
        self.started_at: Final = boot if spec.started_at is None else spec.started_at
        #: When the terminal was created, in seconds since 1970, for display.
        self.started: Final = time.time() if spec.created_time is None else spec.created_time
        monotonic = time.monotonic()
        self.timeline: Final = Timeline(
            monotonic - (boot - self.started_at),
            kept=ring.retained,
            size=size,
            first=Sample(ring.position, monotonic) if ring.position else None,
            known_from=ring.restored_end,
            last=ring.written_at if ring.restored_end else None,
        )
        is_answered = spec.remote is not None and spec.remote.answers_queries
        on_reply = None if is_answered else _Replies(ring, self.keyboard)
        self.emulator: Final = (
            BrokenEmulator(*size)
            if ring.has_emulator_mark
            else Emulator(*size, on_reply, at_work=ring.emulator_mark)
        )
        self._consumer: Final = Consumer(
            ring,
            self.text,
            self.emulator,
            self.timeline,
            turns=turns,
            on_change=self._after_consuming,
            save=partial(keeper.put_screen, self.id),
        )
        self._report: ExitReport | None = None
        self._closed_at = math.inf
        self._output_ended = False
        self._exited = trio.Event()
        self._ending = trio.Event()
        self._closed = trio.Event()
        self._ended_by = EndedBy.EXITED
        self._cause: Cause | None = None
        self._changed = trio.lowlevel.ParkingLot()
        self._lifetime = trio.CancelScope()
        self._unlimited = False
        self._on_exit: Callable[[Terminal], object] = on_exit
        if ring.restored_end:
            self._restore_screen()

    # Queries and commands

    @property
    def output_closed(self) -> bool:
        """Whether the program has exited, and no more output will come."""
        # Also if the worker has closed the PTY, while other processes have it open.
        return self.exit is not None and (self._output_ended or self._master.closed)

    @property
    def is_closed(self) -> bool:
        """Whether all processes have ended and all descriptors are closed."""
        return self._closed.is_set()

    @property
    def pid(self) -> int | None:
        """The pid of the program; None once the keeper has reported the program's exit."""
        return self._pid if self.exit is None and self._report is None else None

    @property
    def retained_bytes(self) -> int:
        """The number of bytes of output in memory."""
        return self.ring.end - self.ring.start + self.text.retained_bytes

    def catch_up(self) -> bool:
        """Consume at most 64 KiB of output now; return whether all is consumed."""
        return self._consumer.catch_up()

    async def caught_up(self) -> None:
        """Wait until text and screen include all output written before this call."""
        await self._consumer.caught_up()

    async def wait_exited(self) -> ExitStatus:
        """Wait until the program has ended and all its output is readable."""
        await self._exited.wait()
        assert self.exit is not None  # noqa: S101  set before the event, for the type checker
        return self.exit

    async def wait_output(self, since: int) -> ExitStatus | None:
        """Wait for output after the position `since`, or for the exit; return the exit status."""
        # Read `exit` first: once it is set, the program's output up to `ring.end` is complete.
        while (status := self.exit) is None and self.ring.end <= since:
            await self.wait_changed()
        return status

    async def wait_output_closed(self) -> None:
        while not self.output_closed:
            await self.wait_changed()

    def has_background(self) -> bool | None:
        """Return whether processes run on after the exit; None if only `background` can tell.

        Raises `OSError` if the processes cannot be read.
        """
        if self.exit is None or self.is_closed:
            return False
        is_empty = self._tree.is_empty()
        return None if is_empty is None else not is_empty

    async def background(self) -> Background | None:
        """Describe the processes that run on; None if all are just ending.

        While the program runs: those beside the foreground group and its ancestors. Raises
        `OSError`.
        """
        members = await self._tree.members()
        if self.exit is None:
            if self.remote is not None or not (group := self._master.foreground_group()):
                return NO_BACKGROUND
            members = beside(members, group)
        return await describe(members)

    async def wait_closed(self) -> None:
        await self._closed.wait()

    async def wait_changed(self) -> None:
        """Wait for the next change: output consumed, size, exit, close, or `notify`."""
        await self._changed.park()

    def notify(self) -> None:
        """Make all pending calls of `wait_changed` return."""
        self._changed.unpark_all()

    def kill(self, by: EndedBy, cause: Cause | None = None) -> None:
        """Begin to end the whole process tree, and return at once. Idempotent.

        The first `by` is reported as what ended the program, with the limit `cause`, if one did.
        """
        if self.exit is None and not self._ending.is_set() and self._report is None:
            self._ended_by, self._cause = by, cause
        self._ending.set()

    def cancel_lifetime(self) -> None:
        self._unlimited = True
        self._lifetime.deadline = math.inf

    def release(self, by: EndedBy) -> None:
        """Mark the terminal as released, and begin to end its processes. Idempotent."""
        self.released = True
        self.kill(by)

    def resize(self, cols: int, rows: int) -> None:
        """Set the terminal size. Raises `trio.ClosedResourceError`."""
        if self._master.closed:
            raise trio.ClosedResourceError
        # Read the position first: before `resize` returns, the program may have redrawn.
        position = self.ring.head
        self._master.resize(cols, rows)
        if (cols, rows) != (self.cols, self.rows):
            self._consumer.resize(cols, rows, position)
        self.cols, self.rows = cols, rows
        self._changed.unpark_all()

    @property
    def reads_lines(self) -> bool:
        """Whether the PTY is in line mode, in which no program edits the line."""
        return self._master.reads_lines

    @property
    def hides_input(self) -> bool:
        """Whether the PTY is in line mode without echo, as at a prompt for a password."""
        return self._master.hides_input

    @property
    def is_queued(self) -> bool:
        """Whether the program waits for resources on a cluster, and has not started."""
        return self.exit is None and self.remote is not None and self.remote.is_queued

    def waiting_process(self) -> int | None:
        """Return the pid of a process that waits for input, 0 for none, None if unknown."""
        # 0 while output is not consumed: a client that is notified of the wait must be able to read
        # all that the program wrote before.
        if self.remote is not None:
            return None
        last_output = self.timeline.last or self.timeline.start
        pid = self._master.waiting_process(time.monotonic() - last_output, self._pid)
        # Output moves from the PTY to the ring, so check the PTY first to miss none.
        if pid and (self._master.has_output or self.ring.has_unread):
            return 0
        return pid

    def stopped_program(self) -> StoppedProcess | None:
        return None if self.remote is not None else self._master.stopped_program()

    def signal(self, number: int) -> bool:
        """Signal the PTY's foreground group, of this host; return whether it was sent."""
        return not self._master.closed and self._master.signal_foreground(number)

    # Reports of the keeper; see `keeper.reports.TerminalEvents`

    def wake(self) -> None:
        self._consumer.wake()

    def exited(self, report: ExitReport) -> None:
        """Record that the keeper has reaped the program."""
        self._report = report
        self._tree.reaped(report.reaped_at, report.orphans)
        self._consumer.catch_up()
        self._consumer.wake()
        self._after_consuming()

    def closed(self, end: int) -> None:
        """Record that no process has the PTY open, and that all output ends at `end`."""
        self._closed_at = end
        self._tree.session_ended()
        self._consumer.catch_up()
        self._consumer.wake()
        self._after_consuming()

    def lost(self) -> None:
        """Record that the keeper has died, and begin to end all processes."""
        if self.exit is None and self._report is None:
            self._ended_by, self._cause = EndedBy.LOST, None
        self._ending.set()
        self.notify()

    # Supervision

    async def run(self, *, grace: float) -> None:
        """Supervise the program until the terminal is closed.

        `grace` is the seconds from SIGTERM to SIGKILL. If cancelled, kills the tree without grace.
        """
        ended = False
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for work in self._early:
                    nursery.start_soon(work)
                nursery.start_soon(self._consumer.run)
                if self.remote is not None:
                    nursery.start_soon(self._await_remote_exit, self.remote)
                    nursery.start_soon(self._follow_remote, self.remote)
                    nursery.start_soon(self._repeat_early_size, (self.cols, self.rows))
                if self._spec.lifetime < math.inf and not self._unlimited:
                    self._lifetime.deadline = trio.current_time() + self._spec.lifetime
                    nursery.start_soon(self._expire)
                await self._ending.wait()
                if self._ended_by is EndedBy.DISCONNECT:
                    grace = min(grace, DISCONNECT_GRACE_S)
                if self.remote is not None and self._ended_by is not EndedBy.LOST:
                    await self._end_remote(self.remote, grace)
                await end(self._tree, grace)
                ended = True
                while self.exit is None and self._ended_by is not EndedBy.LOST:
                    await self.wait_changed()
                nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(_KILL_TIMEOUT_S, shield=True):
                await self._finish(ended=ended)

    async def _end_remote(self, remote: RemoteProgram, grace: float) -> None:
        # A client that ends by itself returns the program's exit status; a killed one does not.
        if await remote.end(grace):
            with trio.move_on_after(_CLIENT_TIMEOUT_S):
                await wait_empty(self._tree)

    async def _follow_remote(self, remote: RemoteProgram) -> None:
        """Report changes of the remote program; kill a client that outlives it."""
        await remote.follow(self.notify)
        with trio.move_on_after(_CLIENT_DRAIN_S):
            while self._report is None:
                await self.wait_changed()
        if self._report is None:
            await self._tree.kill()

    async def _repeat_early_size(self, size: tuple[int, int]) -> None:
        # Until it has set the raw mode, the client ignores SIGWINCH and misses a new size.
        with contextlib.suppress(trio.ClosedResourceError, OSError):
            await self._master.wait_raw()
            if (self.cols, self.rows) != size:
                self._master.signal_foreground(signal.SIGWINCH)

    def _restore_screen(self) -> None:
        position, state = self._keeper.stored_screen(self.id)
        if position < self.ring.position:
            # The output between is released.
            position, state = self.ring.position, b""
        if position:
            self._consumer.restore(position, state, self._screen_lost)

    def _screen_lost(self) -> None:
        if not self._closed.is_set():
            self._start(self._repaint)

    async def _repaint(self) -> None:
        # A program that ignores SIGWINCH does not repaint.
        with contextlib.suppress(trio.ClosedResourceError, OSError):
            if not self._master.closed:
                self._master.resize(self.cols, self.rows - 1 or 2)
                await trio.sleep(_REPAINT_S)
                self.resize(self.cols, self.rows)

    async def _await_remote_exit(self, remote: RemoteProgram) -> None:
        """Set `exit` after the client has ended, by what the other host says."""
        while (report := self._report) is None or self.ring.end < report.end:
            await self.wait_changed()
        if self.exit is not None:
            return
        ended = await remote.exit(*decode_status(report.status))
        if ended.ended_by is not None and (
            self._ended_by is EndedBy.EXITED or ended.ended_by is EndedBy.LOST
        ):
            self._ended_by, self._cause = ended.ended_by, None
        self._set_exit(ended.code, ended.signal, math.nan, 0)

    async def _finish(self, *, ended: bool) -> None:
        """Kill what is left, set `exit` and close descriptors: the last step of `run`."""
        try:
            if not ended or self.exit is None:
                with trio.move_on_after(_KILL_TIMEOUT_S / 2):
                    if not ended:
                        await self._tree.kill()
                    while self.exit is None and self._ended_by is not EndedBy.LOST:
                        # The keeper may need room in the ring before it can report the exit.
                        await self._consumer.caught_up()
                        with trio.move_on_after(0.01):
                            await self._exited.wait()
        finally:
            self._consumer.catch_up()
            if self.exit is None:
                # The exit never became known, but tasks in `wait_exited` must return.
                self._set_exit(UNKNOWN_CODE, None, 0.0, 0)
            self._keeper.disarm(self.id)
            self._keeper.close_master(self.id)
            self._end_output()
            try:
                await self._tree.close()
            finally:
                self._closed.set()
                self._changed.unpark_all()
                # Break reference cycles, so that the memory is freed with the last reference.
                self._consumer.close()
                self._nursery = None

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._closed.is_set():
            raise trio.ClosedResourceError
        if self._nursery is None:
            self._early.append(work)
        else:
            self._nursery.start_soon(work)

    async def _expire(self) -> None:
        with self._lifetime:
            await self._exited.wait()
            return
        self.kill(EndedBy.TIMEOUT, self._spec.lifetime_cause)

    def _after_consuming(self) -> None:
        """Apply the keeper's reports for which all output is consumed now."""
        report = self._report
        if self.ring.position >= self._closed_at:
            self._end_output()
        if report is not None and self.exit is None and self.ring.end >= report.end:
            if self.remote is not None and report.status != UNKNOWN:
                pass  # `_await_remote_exit` sets the exit
            elif report.status == UNKNOWN:
                self._ended_by, self._cause = EndedBy.LOST, None
                self._set_exit(UNKNOWN_CODE, None, report.cpu, report.max_rss)
            else:
                self._set_exit(*decode_status(report.status), report.cpu, report.max_rss)
        self._changed.unpark_all()

    def _end_output(self) -> None:
        if not self._output_ended:
            self._output_ended = True
            self.text.finish()
            if self.ring.position >= self._closed_at:
                self.ring.give_back_room()
            self._master.close()
            self.keyboard.close()

    def _set_exit(self, code: int | None, signal: str | None, cpu: float, max_rss: int) -> None:
        if self._ended_by is EndedBy.EXITED and self.enforcement is not None:
            self._cause = self.enforcement.cause(code, signal)
            if self._cause is not None:
                self._ended_by = EndedBy.LIMIT
        # What follows is written by other programs: it cannot complete a character.
        self.text.finish()
        # `reaped_at` may be earlier than `started_at`, since the program may have ended before this
        # process knew that it was started.
        ended_at = self._report.reaped_at if self._report else processes.now()
        self.exit = ExitStatus(
            code=code,
            signal=signal,
            ended_by=self._ended_by,
            wall=max(0.0, ended_at - self.started_at),
            cpu=cpu,
            max_rss=max_rss,
            cause=self._cause,
            host=None if self.remote is None else self.remote.host,
        )
        self._exited.set()
        self._changed.unpark_all()
        self._on_exit(self)


class _Replies:
    """Types the emulator's replies, unless an earlier worker has answered the query."""

    __slots__ = ("_keyboard", "_ring")

    def __init__(self, ring: SharedRing, keyboard: Keyboard) -> None:
        self._ring = ring
        self._keyboard = keyboard

    def __call__(self, data: bytes) -> None:
        if self._ring.claim_reply():
            self._keyboard.reply(data)
