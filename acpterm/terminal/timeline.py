"""The time of each part of a terminal's output, by position, and the changes of the terminal size.

- A *sample* is a position and a time: output from this position on came at this time or later.
  There is one for the first output, and then at most one every `GRAIN_S` seconds.
- The times of output written before an adoption are unknown. Output before the sample `first`
  (where this worker begins to consume) gets the time of the adoption; output from there to
  `known_from`, which was in the ring, gets the time at which it is consumed.
- At most `SAMPLES_MAX` samples are kept. Then those of output that the ring no longer has are
  removed; the newest quarter is kept, and the older ones are thinned out to another quarter. So
  recent times are exact to `GRAIN_S` seconds, and older ones to about 1 % of their age.
- The last `SIZES_MAX` changes of the size are kept, each with its position.

Times are seconds of `time.monotonic`, passed in by the caller. A sample takes 16 bytes.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

GRAIN_S: Final = 0.01
SAMPLES_MAX: Final = 2048
SIZES_MAX: Final = 256


class Sample(NamedTuple):
    """Output from this position on came at this time or later."""

    position: int
    time: float


class TimedSlice(NamedTuple):
    """A part of the output, with the time at which it came."""

    time: float  # seconds since the terminal's start
    position: int
    end: int  # just past the last byte


class Resize(NamedTuple):
    """A change of the terminal size."""

    time: float  # seconds since the terminal's start
    position: int  # the end of the output consumed before it
    cols: int
    rows: int


class Timeline:
    """The times of one terminal's output; `kept` bytes of it are retained."""

    __slots__ = (
        "_due",
        "_positions",
        "_resizes",
        "_retained",
        "_times",
        "end",
        "known_from",
        "last",
        "resized",
        "size",
        "start",
    )

    def __init__(
        self,
        start: float,
        *,
        kept: int,
        size: tuple[int, int],
        first: Sample | None = None,
        known_from: int = 0,
        last: float | None = None,
    ) -> None:
        self.start: Final = start
        #: The times of bytes before this position are unknown.
        self.known_from: Final = known_from
        #: The position of the next byte to be recorded.
        self.end = 0 if first is None else first.position
        #: The time of the last output; None if no output has a known time.
        self.last = last
        #: Columns and rows before the oldest change of the size that is kept.
        self.size = size
        #: How many times the terminal size has changed.
        self.resized = 0
        self._retained: Final = kept
        self._times = array("d", [] if first is None else [first.time])
        self._positions = array("q", [] if first is None else [first.position])
        self._due = -math.inf
        self._resizes: list[Resize] = []

    def record(self, size: int, now: float) -> None:
        """Record that the next `size` bytes of output came at the time `now`."""
        # Called for each slice of output, so the common path must be short.
        if now >= self._due:
            self._times.append(now)
            self._positions.append(self.end)
            self._due = now + GRAIN_S
            if len(self._times) > SAMPLES_MAX:
                self._thin_out()
        self.end += size
        # Output from before the adoption was not printed now.
        if self.end > self.known_from:
            self.last = now

    def record_size(self, cols: int, rows: int, now: float) -> None:
        if len(self._resizes) == SIZES_MAX:
            gone = self._resizes.pop(0)
            self.size = gone.cols, gone.rows
        self._resizes.append(Resize(now - self.start, self.end, cols, rows))
        self.resized += 1
        # Make the next output a sample: it is later than the change of the size.
        self._due = now

    def resize_at(self, number: int) -> Resize | None:
        """Return the change with this number from 0, or the oldest kept one after it."""
        index = max(0, number - self.first_resize)
        return self._resizes[index] if index < len(self._resizes) else None

    @property
    def first_resize(self) -> int:
        """The number of the oldest kept change, or of the next one."""
        return self.resized - len(self._resizes)

    def slice_at(self, position: int) -> TimedSlice:
        """Return the slice from `position` to the next sample. Raises `ValueError`."""
        if not 0 <= position < self.end:
            raise ValueError(f"no such position: {position}; the stream is at 0 to {self.end}")
        behind = max(1, bisect_right(self._positions, position))
        end = self._positions[behind] if behind < len(self._positions) else self.end
        return TimedSlice(self._times[behind - 1] - self.start, position, end)

    def position_at(self, time: float) -> int:
        """Return where the output that came at `time` (since the start) or later begins."""
        found = bisect_left(self._times, time + self.start)
        position = self._positions[found] if found < len(self._positions) else self.end
        return max(position, self.known_from)

    def _thin_out(self) -> None:
        gone = bisect_right(self._positions, self.end - self._retained) - 1
        if gone > 0:
            del self._times[:gone]
            del self._positions[:gone]
        late = max(0, len(self._times) - SAMPLES_MAX // 4)
        times, positions = self._times[:late], self._positions[:late]
        # A smaller spacing would remove hardly any samples.
        spacing = max(GRAIN_S, (times[-1] - times[0]) / SAMPLES_MAX) if times else GRAIN_S
        while len(times) > SAMPLES_MAX // 4:
            spacing *= 1.5
            times, positions = _apart(times, positions, spacing)
        self._times = times + self._times[late:]
        self._positions = positions + self._positions[late:]


def _apart(
    times: "array[float]", positions: "array[int]", spacing: float
) -> tuple["array[float]", "array[int]"]:
    """Keep the times that are at least `spacing` seconds after the previous kept one."""
    kept: tuple[array[float], array[int]] = array("d"), array("q")
    last = -math.inf
    for time, position in zip(times, positions, strict=True):
        if time - last >= spacing:
            kept[0].append(time)
            kept[1].append(position)
            last = time
    return kept
