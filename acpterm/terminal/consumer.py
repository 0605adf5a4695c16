"""What takes a terminal's output from its ring: into the text, the emulator and the timeline.

One consumer a terminal. It works in slices of at most `SLICE_BYTES` and about `SLICE_S`, and gives
way after each. All consumers take turns by one lock, so that between two slices every request that
has come is served, however many programs flood.

The emulator answers what the program asks its terminal. An answer is sent once: how far the stream
has been answered is in the ring's header before an answer is typed, so that a successor of this
process, which consumes the retained output again, does not answer it again.

While the emulator is fed, the header says so. A successor that finds this mark knows which output
ended the process, and has that terminal go on without an emulator.

States: *idle*, with the keeper asked for a wake-up (`SharedRing.arm`); *behind*, while there are
bytes to consume. `catch_up` consumes what little there is at once, for a request that is not to
miss what the program has already written.

Changes of the window's size are applied where the stream was when they were made.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from acpterm.terminal.shared_ring import SharedRing
from acpterm.terminal.text import simple_output
from acpterm.terminal.text.stream import TextView, resync
from acpterm.terminal.timeline import Timeline
from acpterm.terminal.vt.broken import BrokenEmulator
from acpterm.terminal.vt.emulator import Emulator

SLICE_BYTES: Final = 64 * 1024
SLICE_S: Final = 0.0007
# Less output at once is not worth a look whether it is simple.
_MUCH_BYTES: Final = 8 * 1024
# When nothing has come for so long, text is made of the output that waits for it.
_CALM_S: Final = 0.05


class Turns:
    """The turns of all consumers of one process: one slice at a time."""

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def take(self, step: Callable[[], object]) -> None:
        """Run `step` when it is its turn. Has a checkpoint."""
        async with self._lock:
            step()

    async def take_until_done(self, step: Callable[[], bool]) -> None:
        """Run `step` until it returns False, with checkpoints between, but nobody else's turn."""
        async with self._lock:
            while step():
                await trio.lowlevel.checkpoint()


class Consumer:
    """Consumes one ring. `on_change` is called after output was consumed or a size was applied."""

    __slots__ = (
        "_emulator",
        "_on_change",
        "_resync",
        "_ring",
        "_sizes",
        "_text",
        "_timeline",
        "_turns",
        "_wake",
    )

    def __init__(
        self,
        ring: SharedRing,
        text: TextView,
        emulator: Emulator | BrokenEmulator,
        timeline: Timeline,
        *,
        turns: Turns,
        on_change: Callable[[], None],
    ) -> None:
        self._ring = ring
        self._text = text
        self._emulator = emulator
        self._timeline = timeline
        self._turns = turns
        self._on_change = on_change
        self._sizes: deque[tuple[int, int, int]] = deque()
        self._wake = trio.Event()
        self._resync = ring.position > 0

    def close(self) -> None:
        """Report nothing any more."""
        self._on_change = _nothing

    def wake(self) -> None:
        """Look at the ring again."""
        self._wake.set()

    def resize(self, cols: int, rows: int) -> None:
        """Apply a new size once all that is written by now has been consumed."""
        self._sizes.append((self._ring.head, cols, rows))
        self._apply_sizes()

    def catch_up(self) -> bool:
        """Consume at most one slice now; return whether nothing is left."""
        budget = SLICE_BYTES
        while self._ring.unread and budget > 0:
            before = self._ring.position
            self._step(budget)
            budget -= self._ring.position - before or SLICE_BYTES
        return not self._ring.unread and not self._text.flush()

    async def caught_up(self) -> None:
        """Wait until all that was written before this call has been consumed, and is text."""
        await trio.lowlevel.checkpoint()
        target = self._ring.head
        while self._ring.position < target:
            await self._turns.take(self._slice)
        await self._turns.take_until_done(self._text.flush)

    async def run(self) -> None:
        """Consume until cancelled."""
        ring = self._ring
        while True:
            if not ring.unread:
                self._wake = trio.Event()
                if ring.arm():
                    await self._wait()
                    continue
            await self._turns.take(self._slice)

    async def _wait(self) -> None:
        """Wait for more; make text of a piece that waits for it when nothing comes for a moment."""
        if not self._text.has_deferred:
            # No cancel scope: it would be most of the memory of a terminal that is idle.
            await self._wake.wait()
            return
        with trio.move_on_after(_CALM_S):
            await self._wake.wait()
            return
        await self._turns.take(self._text.flush)

    def _slice(self) -> None:
        self._step(SLICE_BYTES)

    def _step(self, max_bytes: int) -> None:
        """Consume up to `max_bytes`."""
        if self._sizes:
            max_bytes = min(max_bytes, max(0, self._sizes[0][0] - self._ring.position))
        data = self._ring.peek(max_bytes)
        if self._resync and data:
            # What came before is gone: the first bytes may be the rest of a sequence.
            skipped, self._resync = resync(data), False
            self._timeline.record(skipped, time.monotonic())
            self._ring.advance(skipped)
            data = data[skipped:]
        if data:
            self._ring.advance(self._feed(data))
        self._apply_sizes()
        self._on_change()

    def _feed(self, data: bytes) -> int:
        """Feed what of `data` can be fed in one slice; return how much it was.

        That is nothing while other output waits for other slices to become text.
        """
        is_much = len(data) >= _MUCH_BYTES or self._text.has_deferred
        simple = simple_output.find_end(data) if is_much else 0
        if not simple and self._text.flush():
            return 0
        if simple:
            size = self._emulator.feed_simple_for(data[:simple], SLICE_S)
        else:
            size = self._emulator.feed_for(memoryview(data), SLICE_S)
        self._timeline.record(size, time.monotonic())
        if simple and size == simple:
            self._text.feed_simple(data[:size])
        else:
            self._text.feed(data, size)
        return size

    def _apply_sizes(self) -> None:
        while self._sizes and self._sizes[0][0] <= self._ring.position:
            _, cols, rows = self._sizes.popleft()
            self._emulator.resize(cols, rows)
            self._timeline.record_size(cols, rows, time.monotonic())


def _nothing() -> None:
    pass
