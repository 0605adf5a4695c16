"""One terminal: a program on its PTY, what it wrote, and how it ended.

States, in order; none comes back:

    running ──child ends──▶ reapable ──drained──▶ exited ──closed for good──▶ gone
                                                                │
    `released` is a mark beside them: nobody may ask any more; a running program is being ended.

- *running*: the reader takes what the PTY has into the ring and the text.
- *reapable*: the child has ended, its pid is still ours. The PTY is read until it is empty, closed
  or `DRAIN` bytes have come from somebody who holds it still; then the child is reaped.
- *exited*: `exit` is set and whoever waits is told. Where the kernel has not hung them up,
  processes it left may write on, and are read.
- *gone*: the tree has ended, the descriptors are closed. What was written stays readable.

Two facts end a program, in either order. The PTY closes first when a program closes its own
descriptors and runs on: then it has not exited, and may open `/dev/tty` again, so the master is
kept and looked at every `REOPENED` seconds. The child goes first as a rule.

Who owns what: `run` owns the child, its descriptors and its tree, from its start to its end; it is
one task (with children) in the pool's nursery. The ring and the text belong to the terminal.
Cancelling `run` kills the program at once and closes everything.
"""

import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from acpterm.pty.reap import Exit, reap, wait_reapable
from acpterm.pty.spawn import Child
from acpterm.pty.tree import end
from acpterm.terminal.floods import Floods
from acpterm.terminal.keyboard import Keyboard
from acpterm.terminal.output import Output
from acpterm.terminal.reader import Reader
from acpterm.terminal.ring import Ring
from acpterm.terminal.status import EndedBy, ExitStatus
from acpterm.terminal.text import TextView
from acpterm.terminal.timeline import Timeline
from acpterm.terminal.vt.emulator import Emulator

# Seconds until a child that a debugger holds on to is looked at again.
REAPED: Final = 0.02
# The most seconds of grace for a program whose owner has gone.
FAREWELL: Final = 2.0
# Seconds that SIGKILL may take to be obeyed before the rest is given up and reported.
_LAST_DEADLINE: Final = 5.0

# 255 and no signal is what a shell says of a status that it could not have; agents break on
# neither.
_UNKNOWN: Final = Exit(code=255, signal=None, cpu=math.nan, max_rss=0)


def _nothing() -> None:
    pass


class Terminal:
    """A terminal. Made by `Pool.create`, which also runs it."""

    def __init__(
        self,
        child: Child,
        *,
        size: tuple[int, int],
        limit: int,
        ring_size: int,
        view: str,
    ) -> None:
        self.id: Final = child.name
        self._output: Final = Output(ring_size, limit)
        self.limit: Final = limit
        self.view: Final = view
        self.exit: ExitStatus | None = None
        self.released = False
        self.cols, self.rows = size
        self.keyboard: Final = Keyboard(child.master, self._start)
        self._nursery: trio.Nursery | None = None
        self._child: Final = child
        self._started = time.monotonic()
        #: When it was made, for people: seconds since 1970.
        self.started: Final = time.time()
        self.timeline: Final = Timeline(self._started, kept=ring_size, size=size)
        self._exited = trio.Event()
        self._ending = trio.Event()
        self._gone = trio.Event()
        self._ended_by = EndedBy.EXITED
        self._news = trio.lowlevel.ParkingLot()
        #: What its window shows; see `caught_up`.
        self.emulator: Final = Emulator(*size, self.keyboard.answer)
        self.reader: Final = Reader(
            self.id,
            child.master,
            self._output,
            self.timeline,
            self.emulator,
            told=self.tell,
        )
        self._lifetime = trio.CancelScope()
        self._kept = False
        self.when_exited: Callable[[], None] = _nothing
        """Called once, when `exit` has been set."""

    # What may be asked of it

    @property
    def silent(self) -> bool:
        """Whether nothing more can come: the program has ended, and its PTY is closed."""
        return self.exit is not None and self._child.master.closed

    @property
    def gone(self) -> bool:
        """Whether its processes and descriptors are."""
        return self._gone.is_set()

    @property
    def pid(self) -> int | None:
        """Its program's, while that is ours: from its start until it is reaped."""
        return self._child.pid if self.exit is None else None

    @property
    def ring(self) -> Ring:
        """What it has printed: the raw bytes."""
        return self._output.ring

    @property
    def text(self) -> TextView:
        """What it has printed: the text."""
        return self._output.text

    @property
    def held(self) -> int:
        """Bytes of output in memory, raw and text."""
        return self._output.held

    async def caught_up(self) -> None:
        """Have the emulator know all that was written so far, up to the ring's end."""
        await trio.lowlevel.checkpoint()

    async def wait_exited(self) -> ExitStatus:
        """Wait for the program's end, and all it had written to be readable."""
        await self._exited.wait()
        assert self.exit is not None  # noqa: S101  set before the event, for the type checker
        return self.exit

    async def wait_gone(self) -> None:
        """Wait until its processes have ended and its descriptors are closed."""
        await self._gone.wait()

    async def wait_news(self) -> None:
        """Wait for output that comes after this call, for another size, or for the end."""
        await self._news.park()

    def tell(self) -> None:
        """Wake all that wait for news: there is some that the terminal does not know of."""
        self._news.unpark_all()

    def kill(self, by: EndedBy) -> None:
        """Begin to end the whole tree, on behalf of `by`. Returns at once; can be repeated."""
        if self.exit is None and not self._ending.is_set() and not self.reader.ended:
            self._ended_by = by
        self._ending.set()

    def keep(self) -> None:
        """Have its program run for as long as it likes, whatever time it was given."""
        self._kept = True
        self._lifetime.deadline = math.inf

    def release(self, by: EndedBy) -> None:
        """Begin to end the tree and close the PTY for good. Returns at once; can be repeated."""
        self.released = True
        self.kill(by)

    def resize(self, cols: int, rows: int) -> None:
        """Set the window's size. Raises `trio.ClosedResourceError` when the terminal has ended."""
        if self._child.master.closed:
            raise trio.ClosedResourceError
        self._child.master.resize(cols, rows)
        if (cols, rows) != (self.cols, self.rows):
            self.timeline.note_size(cols, rows, time.monotonic())
            self.emulator.resize(cols, rows)
        self.cols, self.rows = cols, rows
        self._news.unpark_all()

    def waits_for_input(self) -> bool | None:
        """Whether its program waits for somebody to type (`pty.waiting`); None if nobody knows."""
        busy = self.timeline.last or self.timeline.start
        return self._child.master.waits_for_input(time.monotonic() - busy)

    def signal(self, number: int) -> bool:
        """Signal the foreground process group; whether there is one."""
        return not self._child.master.closed and self._child.master.signal_foreground(number)

    # What runs it

    async def run(self, *, grace: float, lifetime: float, floods: Floods) -> None:
        """Supervise the program until the terminal is gone.

        `grace`: seconds between SIGTERM and SIGKILL; `lifetime`: seconds until the program is
        killed, or `math.inf`; `floods` is shared by all terminals. Cancelled, it kills the tree
        with no grace.
        """
        ended = False
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._read, floods)
                nursery.start_soon(self._see_exit)
                if lifetime < math.inf and not self._kept:
                    self._lifetime.deadline = trio.current_time() + lifetime
                    nursery.start_soon(self._expire)
                await self._ending.wait()
                if self._ended_by is EndedBy.DISCONNECT:
                    grace = min(grace, FAREWELL)
                await end(self._child.tree, grace)
                ended = True
                if self.exit is None:
                    await self._exited.wait()
                nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(_LAST_DEADLINE, shield=True):
                await self._finish(ended=ended)

    async def _finish(self, *, ended: bool) -> None:
        """Close everything: first the processes, unless they have `ended`; then the descriptors."""
        child = self._child
        try:
            if not ended or self.exit is None:
                with trio.move_on_after(_LAST_DEADLINE / 2):
                    if not ended:
                        await child.tree.kill()
                    if self.exit is None:
                        await self._see_exit()
        finally:
            if self.exit is None:
                # Whoever waits is told all the same.
                self._set_exit(_UNKNOWN)
            child.master.close()
            self.keyboard.close()
            child.close_pidfd()
            self._output.finish()
            try:
                await child.tree.close()
            finally:
                self._gone.set()
                self._news.unpark_all()

    async def _read(self, floods: Floods) -> None:
        await self.reader.run(floods)
        self.keyboard.close()
        self._news.unpark_all()

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._nursery is None:
            raise trio.ClosedResourceError
        self._nursery.start_soon(work)

    async def _see_exit(self) -> None:
        await wait_reapable(self._child.pid, self._child.pidfd)
        self.reader.end()
        while not self._reap():  # noqa: ASYNC110  the kernel tells of this to nobody
            await trio.sleep(REAPED)

    async def _expire(self) -> None:
        with self._lifetime:
            await self._exited.wait()
            return
        self.kill(EndedBy.TIMEOUT)

    def _reap(self) -> bool:
        """Reap the child and tell how it ended; False while that cannot be had."""
        try:
            ended = reap(self._child.pid)
        except ChildProcessError:
            ended = _UNKNOWN  # somebody else in this process has waited for all children
        if ended is not None:
            self._set_exit(ended)
        return ended is not None

    def _set_exit(self, ended: Exit) -> None:
        self._child.tree.reaped()
        self._child.close_pidfd()
        self.exit = ExitStatus(
            code=ended.code,
            signal=ended.signal,
            ended_by=self._ended_by,
            wall=time.monotonic() - self._started,
            cpu=ended.cpu,
            max_rss=ended.max_rss,
        )
        self._exited.set()
        self._news.unpark_all()
        self.when_exited()
