"""The consumer of a terminal's ring, which feeds the text, the emulator and the timeline.

It consumes output in slices of at most `SLICE_BYTES` bytes, which take about `SLICE_S` seconds, and
yields to the event loop after each. All consumers take turns by one lock, so requests are served
between two slices, even if many programs print without pause.

Only the consumer advances the ring, which makes output readable and gives the keeper room to write.
All other readers have positions of their own, and may hold output (`SharedRing.hold`).

Take-over: before a reply to a query is typed, the ring's header records the position up to which
queries are answered, so the next worker does not repeat it. A flag in the header is set while the
emulator runs: a worker that finds it set knows that the old one crashed on this terminal's output,
and uses no emulator. The emulator's state is stored in the keeper (`save`) before the output that
follows the previous state is released; the next worker continues from it (`restore`). So its screen
also has what was drawn before the oldest retained output.

States: *idle*, after requesting a wake-up from the keeper (`SharedRing.arm`); *behind*. `catch_up`
consumes a small backlog at once, so that the answer to a request includes what is already written.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from acpterm.pty import linux
from acpterm.terminal.shared_ring import SharedRing
from acpterm.terminal.text import simple_output
from acpterm.terminal.text.slices import resync
from acpterm.terminal.text.stream import TextView
from acpterm.terminal.timeline import Timeline
from acpterm.terminal.vt.broken import BrokenEmulator
from acpterm.terminal.vt.emulator import Emulator

SLICE_BYTES: Final = 64 * 1024
SLICE_S: Final = 0.0007
# The text of a program that draws rows again takes up to 20 us per byte.
_REDRAWING_SLICE_BYTES: Final = 1024
# `catch_up` begins no slice after this time. 64 KiB of ordinary output take some 3 ms.
_CATCH_UP_S: Final = 0.01
# For less output than this, checking whether it is simple output takes longer than it saves.
_SIMPLE_MIN_BYTES: Final = 8 * 1024
# Output that the text view stores unprocessed is processed once no output came for this long.
_QUIET_S: Final = 0.05
# After this much output, free memory is returned to the system. This takes up to some milliseconds.
_TRIM_BYTES: Final = 1024 * 1024


class Turns:
    """The lock by which consumers take turns. Only `Consumer.catch_up` consumes without it."""

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def take(self, step: Callable[[], object]) -> None:
        async with self._lock:
            step()

    async def take_until_done(self, step: Callable[[], bool]) -> None:
        """Run `step` until it returns False; other tasks run in between, but no consumer."""
        async with self._lock:
            while step():
                await trio.lowlevel.checkpoint()


class Consumer:
    """Feeds the output in one terminal's ring to the text, the emulator and the timeline."""

    __slots__ = (
        "_due",
        "_emulator",
        "_on_change",
        "_resync",
        "_ring",
        "_save",
        "_saved",
        "_text",
        "_timeline",
        "_trimmed",
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
        save: Callable[[int, bytes], None],
    ) -> None:
        self._ring = ring
        self._text = text
        self._emulator = emulator
        self._timeline = timeline
        self._turns = turns
        self._on_change = on_change
        self._save = save
        # The position of the state that was saved last.
        self._saved = 0
        # What changes at which positions: sizes, and the state of an earlier worker's emulator.
        # A list: an empty deque would take 0.7 KiB of each terminal.
        self._due: list[tuple[int, Callable[[], object]]] = []
        # The position at which free memory was last returned to the system.
        self._trimmed = 0
        self._wake: Final = trio.lowlevel.ParkingLot()
        self._resync = ring.position > 0

    def close(self) -> None:
        """Never call `on_change` and `save` again, and drop the references to them."""
        self._on_change = self._save = _nothing

    def wake(self) -> None:
        self._wake.unpark_all()

    def resize(self, cols: int, rows: int, position: int) -> None:
        """Apply a new size once all output before `position` is consumed."""
        self._at(position, partial(self._resize, cols, rows))

    def restore(self, position: int, state: bytes, on_lost: Callable[[], None]) -> None:
        """Give the emulator the state saved at `position`, before any output is consumed."""
        self._saved = position if state else 0

        def apply() -> None:
            if not self._emulator.restore(state):
                on_lost()

        self._at(position, apply)

    def _at(self, position: int, apply: Callable[[], object]) -> None:
        self._due.append((position, apply))
        self._apply_due()

    def catch_up(self) -> bool:
        """Consume a slice now; return whether all output is consumed and processed."""
        budget = SLICE_BYTES
        deadline = time.monotonic() + _CATCH_UP_S
        while self._ring.unread and budget > 0 and time.monotonic() < deadline:
            before = self._ring.position
            self._step(budget)
            budget -= self._ring.position - before or SLICE_BYTES
        return not self._ring.unread and not self._text.flush()

    async def caught_up(self) -> None:
        """Wait until all output written before this call is consumed and processed."""
        await trio.lowlevel.checkpoint()
        target = self._ring.head
        while self._ring.position < target:
            await self._turns.take(self._slice)
        await self._turns.take_until_done(self._text.flush)

    async def run(self) -> None:
        ring = self._ring
        while True:
            if not ring.unread and ring.arm():
                await self._wait()
                continue
            await self._turns.take(self._slice)

    async def _wait(self) -> None:
        """Wait for more output; after a quiet time do a piece of the deferred work."""
        if not self._text.has_deferred and not self._may_trim:
            # No timeout: its cancel scope would take most of the memory of an idle terminal.
            await self._wake.park()
            return
        with trio.move_on_after(_QUIET_S):
            await self._wake.park()
            return
        await self._turns.take(self._flush)

    @property
    def _may_trim(self) -> bool:
        return self._ring.position > self._trimmed + _TRIM_BYTES

    def _flush(self) -> None:
        if not self._text.flush() and self._may_trim:
            # The free heap would keep some half a MiB of each flood.
            self._trimmed = self._ring.position
            linux.trim_memory()

    def _slice(self) -> None:
        self._step(SLICE_BYTES)

    def _step(self, max_bytes: int) -> None:
        """Consume at most `max_bytes`, up to the next change that is due; then apply it."""
        if self._due:
            max_bytes = min(max_bytes, max(0, self._due[0][0] - self._ring.position))
        if self._text.redraws:
            max_bytes = min(max_bytes, _REDRAWING_SLICE_BYTES)
        data = self._ring.peek(max_bytes)
        if self._resync and data:
            # The output before `data` is lost, so `data` may begin within an escape sequence.
            skipped, self._resync = resync(data), False
            self._timeline.record(skipped, time.monotonic())
            if self._ring.position == self._saved:
                # The emulator has the output before `data`.
                self._emulator.feed(data[:skipped])
            self._ring.advance(skipped)
            data = data[skipped:]
        if data:
            size = self._feed(data)
            self._save_state(self._ring.position + size)
            self._ring.advance(size)
        self._apply_due()
        self._on_change()

    def _feed(self, data: bytes) -> int:
        """Feed `data` for about `SLICE_S` seconds; return the number of bytes fed.

        Output that is not simple needs the text view to process all that it has deferred: one piece
        a call, and 0 is returned while pieces are left.
        """
        is_worthwhile = len(data) >= _SIMPLE_MIN_BYTES or self._text.has_deferred
        simple = simple_output.find_end(data) if is_worthwhile else 0
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
            self._text.feed(data[:size])
        return size

    def _apply_due(self) -> None:
        while self._due and self._due[0][0] <= self._ring.position:
            self._due.pop(0)[1]()

    def _resize(self, cols: int, rows: int) -> None:
        self._emulator.resize(cols, rows)
        self._text.resize(cols, rows)
        self._timeline.record_size(cols, rows, time.monotonic())

    def _save_state(self, position: int) -> None:
        # Half of what is retained: this leaves time if there is no state within a sequence.
        if position - self._saved >= self._ring.retained // 2 and (state := self._emulator.state()):
            self._save(position, state)
            self._saved = position


def _nothing(*_: object) -> None:
    pass
