"""A terminal's raw output, in the ring file that the keeper fills and this process consumes.

Positions are absolute and only grow. Three of them divide the stream:

    0 ── start ─────── position ─── head
         └ retained ─┘ └ unread ──┘

- from `start` to `position`: consumed here and still readable;
- from `position` to `head`: written by the keeper and not consumed yet;
- before `start`: released. The keeper overwrites only released bytes, so a read never races with
  it. When no room is left, the keeper stops reading the PTY, and the program blocks.

A reader that must not miss anything holds a position: nothing from there on is released.

After a takeover a new process maps the same file, and consumes again from the oldest byte that the
old one had not released. What was written by then, up to `restored_end`, is readable at once, so
readers continue at the positions that they had.
"""

from collections.abc import Callable
from typing import Final

from acpterm.keeper import ring as layout
from acpterm.terminal.ring import Slice, bounds

# Bytes that the keeper may write ahead of the consumer, beyond what is retained.
WINDOW_BYTES: Final = 1024 * 1024

# After less output than this there is no memory to give back.
_TRIM_MIN_BYTES: Final = 64 * 1024


class EmulatorMark:
    """Marks a ring's header while the emulator is at work."""

    __slots__ = ("_header",)

    def __init__(self, header: memoryview) -> None:
        self._header = header

    def __enter__(self) -> None:
        self._header[layout.EMULATOR] = self._header[layout.HEAD] + 1

    def __exit__(self, *_: object) -> None:
        self._header[layout.EMULATOR] = 0


class SharedRing:
    """The consumer's side of one ring file.

    `retained`: how many consumed bytes stay readable. `arm` is called with the header to ask the
    keeper for a wake-up, and `on_room` when the keeper had run out of room and can continue.
    `adopted`: whether an earlier process has consumed from the file.
    """

    __slots__ = (
        "_arm",
        "_data",
        "_file",
        "_header",
        "_holds",
        "_on_room",
        "_peeked",
        "_size",
        "position",
        "replied_until",
        "restored_end",
        "retained",
    )

    def __init__(
        self,
        fd: int,
        retained: int,
        *,
        arm: Callable[[memoryview], None],
        on_room: Callable[[], None],
        adopted: bool = False,
    ) -> None:
        self._file: Final = layout.map_ring(fd)
        self._header: Final = self._file.header
        self._data: Final = self._file.data
        self._size: Final = self._file.capacity
        self._arm = arm
        self._on_room = on_room
        self._holds: dict[object, int] = {}
        self.retained = retained
        #: The position behind the last byte consumed.
        self.position = 0
        #: The position behind the last byte written before this process took the file over.
        self.restored_end = 0
        self._peeked = 0
        #: Queries before this position have been answered by an earlier process.
        self.replied_until = int(self._header[layout.REPLIED])
        if adopted:
            self.position = int(self._header[layout.CONSUMED])
            self.restored_end = self.head

    @property
    def start(self) -> int:
        """The position of the oldest byte that can be read."""
        return int(self._header[layout.CONSUMED])

    @property
    def end(self) -> int:
        """The position behind the last byte that can be read."""
        return max(self.position, self.restored_end)

    @property
    def head(self) -> int:
        """The position behind the last byte that the keeper has written."""
        return int(self._header[layout.HEAD])

    @property
    def unread(self) -> int:
        """How many bytes are written and not yet consumed."""
        return int(self._header[layout.HEAD]) - self.position

    def peek(self, max_bytes: int) -> bytes:
        """Return the next bytes to consume, at most `max_bytes`.

        They end at the latest at the position up to which an earlier process has answered queries.
        """
        if self.position < self.replied_until:
            max_bytes = min(max_bytes, self.replied_until - self.position)
        data = self._copy(self.position, min(max_bytes, self.unread))
        self._peeked = self.position + len(data)
        return data

    def advance(self, count: int) -> None:
        """Consume `count` bytes, and release the oldest beyond `retained`."""
        self.position += count
        self._release()

    def give_back_room(self) -> None:
        """Give back the memory of unreadable parts, once the keeper writes nothing more."""
        if self.position > _TRIM_MIN_BYTES:
            self._file.release_free_pages()

    def arm(self) -> bool:
        """Ask the keeper for a wake-up at its next write; return whether to wait for it.

        False means that bytes have come meanwhile: consume them instead of waiting.
        """
        self._arm(self._header)
        return int(self._header[layout.HEAD]) == self.position

    @property
    def emulator_mark(self) -> EmulatorMark:
        """A reusable context manager that marks the header while the emulator is at work."""
        return EmulatorMark(self._header)

    @property
    def has_emulator_mark(self) -> bool:
        """Whether a process ended while the emulator was at work on this output."""
        return bool(self._header[layout.EMULATOR])

    def claim_reply(self) -> bool:
        """Return whether to reply to a query in the bytes peeked last; record the reply as sent.

        False if an earlier process has answered the query.
        """
        if self.position < self.replied_until:
            return False
        self._header[layout.REPLIED] = self._peeked
        return True

    def hold(self, reader: object, position: int) -> None:
        """Retain everything from `position` on until `reader` holds a later position or none."""
        self._holds[reader] = position
        self._release()

    def let_go(self, reader: object) -> None:
        """Release what was held only for `reader`. Can be repeated."""
        if self._holds.pop(reader, None) is not None:
            self._release()

    def read(self, since: int, max_bytes: int | None = None) -> Slice:
        """Return what is readable from position `since` on; see `Ring.read`.

        Raises `ValueError` for a position that cannot be read yet, or a negative size.
        """
        position, length = bounds(since, max_bytes, self.start, self.end)
        return Slice(self._copy(position, length), position, position - since)

    def _release(self) -> None:
        released = max(0, self.position - self.retained, self.start)
        if self._holds:
            # Released bytes stay released: the keeper may have overwritten them.
            released = max(self.start, min(released, *self._holds.values()))
        self._header[layout.CONSUMED] = released
        if self._header[layout.STALLED]:
            self._on_room()

    def _copy(self, position: int, length: int) -> bytes:
        if length <= 0:
            return b""
        index = position % self._size
        first = self._data[index : index + length]
        rest = length - len(first)
        return b"".join((first, self._data[:rest])) if rest else bytes(first)
