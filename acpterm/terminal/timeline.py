"""When a terminal wrote what: times for the positions of its stream, and its window's sizes.

States and rules:

- A mark says: what is in the stream from this position on came at this time, or after it. There is
  one for the first output, and then at most one each `GRAIN` seconds.
- At most `MARKS` marks are kept. When there are more, those of output that the ring no longer has
  go, and then, but for the last quarter, they are thinned out until half are left: of those closer
  together than some time, which grows until that is enough, one stays. So when output came lately
  is known to `GRAIN` seconds, and of older output to some hundredth of how far back that goes.
- What a process before this one had consumed, up to `known_from`, is noted when it is consumed
  again: when it came is unknown.
- Of the window's sizes the last `SIZES` are kept, each with its position in the stream.

Times are seconds of `time.monotonic`; whoever notes something says what time it is. Memory follows
what was noted: 16 bytes a mark.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

GRAIN_S: Final = 0.01
MARKS_MAX: Final = 2048
SIZES_MAX: Final = 256


class Slice(NamedTuple):
    """A run of the stream that came at one time, as far as is known."""

    time: float
    """Seconds since the terminal's start."""
    position: int
    end: int
    """The position behind it."""


class Resize(NamedTuple):
    """A change of the window's size."""

    time: float
    """Seconds since the terminal's start."""
    position: int
    """Where the stream was: what is behind it was written later, or read later."""
    cols: int
    rows: int


class Timeline:
    """The times of one terminal's output; `start` is when the terminal began.

    `end`: the position of the first byte to be noted. `kept`: how many bytes of output the terminal
    keeps; what came before needs no time. `size`: columns and rows at the start. `known_from`: the
    position of the first byte that comes to this process first.
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
        #: When the bytes before this position came is unknown.
        self.known_from: Final = known_from
        #: The position that the next byte will have.
        self.end = end
        #: When output came last; None while there was none.
        self.last: float | None = None
        #: Columns and rows before the first resize that `resize_at` knows.
        self.size = size
        #: How often the size has changed.
        self.resized = 0
        self._marks: Final = kept
        self._times = array("d")
        self._positions = array("q")
        self._due = -math.inf
        self._resizes: deque[Resize] = deque()

    def record(self, size: int, now: float) -> None:
        """Note that `size` bytes, at least one, have come `now`."""
        # Called for all that is read, so that it does next to nothing as a rule.
        if now >= self._due:
            self._times.append(now)
            self._positions.append(self.end)
            self._due = now + GRAIN_S
            if len(self._times) > MARKS_MAX:
                self._thin_out()
        self.end += size
        self.last = now

    def record_size(self, cols: int, rows: int, now: float) -> None:
        """Note that the window has a new size `now`."""
        if len(self._resizes) == SIZES_MAX:
            gone = self._resizes.popleft()
            self.size = gone.cols, gone.rows
        self._resizes.append(Resize(now - self.start, self.end, cols, rows))
        self.resized += 1
        # What comes next came after this.
        self._due = now

    def resize_at(self, number: int) -> Resize | None:
        """Give the first resize that is kept of those from the `number`th on, which is from 0."""
        index = max(0, number - self.first_resize)
        return self._resizes[index] if index < len(self._resizes) else None

    @property
    def first_resize(self) -> int:
        """The number of the oldest resize that is kept, or of the next one."""
        return self.resized - len(self._resizes)

    def slice_at(self, position: int) -> Slice:
        """Give the slice that begins at `position` and ends where other output came later.

        Raises `ValueError` unless the stream has a byte there, kept or not. Of what is long gone
        the time is that of the oldest mark.
        """
        if not 0 <= position < self.end:
            raise ValueError(f"no such position: {position}; the stream is at 0 to {self.end}")
        behind = max(1, bisect_right(self._positions, position))
        end = self._positions[behind] if behind < len(self._positions) else self.end
        return Slice(self._times[behind - 1] - self.start, position, end)

    def position_at(self, time: float) -> int:
        """Return the position of the first output that came at `time` or later, or the end.

        `time`: seconds since the terminal's start. Output of an unknown time is passed over.
        """
        found = bisect_left(self._times, time + self.start)
        position = self._positions[found] if found < len(self._positions) else self.end
        return max(position, self.known_from)

    def slices(self, position: int, end: int) -> Iterator[Slice]:
        """Go through the stream from `position` to `end`, which it has reached.

        More may be noted between two steps.
        """
        while position < end:
            found = self.slice_at(position)
            position = min(found.end, end)
            yield found._replace(end=position)

    def _thin_out(self) -> None:
        gone = bisect_right(self._positions, self.end - self._marks) - 1
        if gone > 0:
            del self._times[:gone]
            del self._positions[:gone]
        late = max(0, len(self._times) - MARKS_MAX // 4)
        times, positions = self._times[:late], self._positions[:late]
        # With less, hardly any would go.
        spacing = max(GRAIN_S, (times[-1] - times[0]) / MARKS_MAX) if times else GRAIN_S
        while len(times) > MARKS_MAX // 4:
            spacing *= 1.5
            times, positions = _apart(times, positions, spacing)
        self._times = times + self._times[late:]
        self._positions = positions + self._positions[late:]


def _apart(
    times: "array[float]", positions: "array[int]", spacing: float
) -> tuple["array[float]", "array[int]"]:
    """Give the first mark, and each that comes `spacing` or more after the last one given."""
    kept: tuple[array[float], array[int]] = array("d"), array("q")
    last = -math.inf
    for time, position in zip(times, positions, strict=True):
        if time - last >= spacing:
            kept[0].append(time)
            kept[1].append(position)
            last = time
    return kept
