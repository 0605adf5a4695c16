"""The times of a terminal's output, by position in the stream, and the sizes of its window.

Rules:

- A mark is a position and a time: output from this position on came at this time or later. There is
  one for the first output, and then at most one every `GRAIN_S` seconds.
- At most `MARKS_MAX` marks are kept. When there are more, marks of output that the ring no longer
  has are removed. Then all but the newest quarter are thinned out until half are left: of marks
  closer together than a spacing, which grows until that is enough, one is kept. So the times of
  recent output are exact to `GRAIN_S` seconds, and of older output to about a hundredth of its age.
- Output that an earlier process had consumed, up to `known_from`, is recorded when it is consumed
  again: its real time is unknown.
- The last `SIZES_MAX` sizes of the window are kept, each with its position in the stream.

Times are seconds of `time.monotonic`, passed in by the caller. A mark takes 16 bytes.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final, NamedTuple

GRAIN_S: Final = 0.01
MARKS_MAX: Final = 2048
SIZES_MAX: Final = 256


class Slice(NamedTuple):
    """A run of the stream with one known time."""

    time: float
    """Seconds since the terminal's start."""
    position: int
    end: int
    """The position behind the last byte."""


class Resize(NamedTuple):
    """A change of the window's size."""

    time: float
    """Seconds since the terminal's start."""
    position: int
    """The end of the stream at that time: later output was written, or consumed, later."""
    cols: int
    rows: int


class Timeline:
    """The times of one terminal's output; `start` is when the terminal began.

    `end`: the position of the first byte to be recorded. `kept`: how many bytes of output the
    terminal retains; older output needs no time. `size`: columns and rows at the start.
    `known_from`: the position of the first byte that no earlier process has consumed.
    """

    __slots__ = (
        "_due",
        "_marks",
        "_positions",
        "_resizes",
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
        end: int = 0,
        known_from: int = 0,
    ) -> None:
        self.start: Final = start
        #: The times of bytes before this position are unknown.
        self.known_from: Final = known_from
        #: The position that the next byte will have.
        self.end = end
        #: The time of the last output; None before the first of a known time.
        self.last: float | None = None
        #: Columns and rows before the first resize that `resize_at` knows.
        self.size = size
        #: How many times the size has changed.
        self.resized = 0
        self._marks: Final = kept
        self._times = array("d")
        self._positions = array("q")
        self._due = -math.inf
        self._resizes: deque[Resize] = deque()

    def record(self, size: int, now: float) -> None:
        """Record that `size` bytes, at least one, have come at the time `now`."""
        # Called for each slice of output, so the common path must be short.
        if now >= self._due:
            self._times.append(now)
            self._positions.append(self.end)
            self._due = now + GRAIN_S
            if len(self._times) > MARKS_MAX:
                self._thin_out()
        self.end += size
        # A predecessor's output is consumed again, at a time that says nothing.
        if self.end > self.known_from:
            self.last = now

    def record_size(self, cols: int, rows: int, now: float) -> None:
        """Record a new size of the window at the time `now`."""
        if len(self._resizes) == SIZES_MAX:
            gone = self._resizes.popleft()
            self.size = gone.cols, gone.rows
        self._resizes.append(Resize(now - self.start, self.end, cols, rows))
        self.resized += 1
        # Output from here on is later than the resize, so it needs a mark.
        self._due = now

    def resize_at(self, number: int) -> Resize | None:
        """Return the first resize kept with a number of at least `number`, counted from 0."""
        index = max(0, number - self.first_resize)
        return self._resizes[index] if index < len(self._resizes) else None

    @property
    def first_resize(self) -> int:
        """The number of the oldest resize kept; of the next one if there is none."""
        return self.resized - len(self._resizes)

    def slice_at(self, position: int) -> Slice:
        """Return the slice that begins at `position` and ends at the next mark.

        Raises `ValueError` unless the stream has a byte there, retained or not. Output before the
        oldest mark has the time of that mark.
        """
        if not 0 <= position < self.end:
            raise ValueError(f"no such position: {position}; the stream is at 0 to {self.end}")
        behind = max(1, bisect_right(self._positions, position))
        end = self._positions[behind] if behind < len(self._positions) else self.end
        return Slice(self._times[behind - 1] - self.start, position, end)

    def position_at(self, time: float) -> int:
        """Return the position of the first output that came at `time` or later, or the end.

        `time`: seconds since the terminal's start. Output of an unknown time is skipped.
        """
        found = bisect_left(self._times, time + self.start)
        position = self._positions[found] if found < len(self._positions) else self.end
        return max(position, self.known_from)

    def _thin_out(self) -> None:
        gone = bisect_right(self._positions, self.end - self._marks) - 1
        if gone > 0:
            del self._times[:gone]
            del self._positions[:gone]
        late = max(0, len(self._times) - MARKS_MAX // 4)
        times, positions = self._times[:late], self._positions[:late]
        # A smaller spacing would remove hardly any marks.
        spacing = max(GRAIN_S, (times[-1] - times[0]) / MARKS_MAX) if times else GRAIN_S
        while len(times) > MARKS_MAX // 4:
            spacing *= 1.5
            times, positions = _apart(times, positions, spacing)
        self._times = times + self._times[late:]
        self._positions = positions + self._positions[late:]


def _apart(
    times: "array[float]", positions: "array[int]", spacing: float
) -> tuple["array[float]", "array[int]"]:
    """Return the first mark, and each that is `spacing` or more after the last one returned."""
    kept: tuple[array[float], array[int]] = array("d"), array("q")
    last = -math.inf
    for time, position in zip(times, positions, strict=True):
        if time - last >= spacing:
            kept[0].append(time)
            kept[1].append(position)
            last = time
    return kept
