"""The worker's end of a ring: raw output in a file that the keeper fills and the worker consumes.

`keeper.ring_file` defines the file's layout and maps it; `private_ring` is a ring that no other
process shares.

Positions are absolute and only grow. Three of them divide the stream:

    0 ── start ─────── position ─── head
         └ retained ─┘ └ unread ──┘

- before `start`: *released* bytes, which the keeper may overwrite. The keeper overwrites no other
  bytes, so a read never races with a write. When the file has no room left, the keeper stops
  reading the PTY, and the program blocks;
- from `start` to `position`: consumed by this worker and still readable;
- from `position` to `head`: written by the keeper and not consumed yet.

A reader that must not miss any output holds a position (`hold`): no byte from that position on is
released.

After a take-over the new worker maps the same file, and consumes again from the oldest byte that
the old worker had not released. Output up to `restored_end` (the `head` at the take-over) can be
read even before it is consumed, so readers continue at the positions that they had.
"""

from collections.abc import Callable
from typing import Final

from acpterm.keeper import ring_file as layout
from acpterm.keeper.encodings import encode_input
from acpterm.terminal.private_ring import Slice, bounds

# Bytes that the keeper may write ahead of the consumer, in addition to the retained bytes.
WINDOW_BYTES: Final = 1024 * 1024

# With less output than this, `give_back_room` returns nothing: it would not pay.
_TRIM_MIN_BYTES: Final = 64 * 1024


class EmulatorMark:
    """Sets the flag in the ring's header while the emulator runs."""

    __slots__ = ("_header",)

    def __init__(self, header: memoryview) -> None:
        self._header = header

    def __enter__(self) -> None:
        self._header[layout.EMULATOR] = self._header[layout.HEAD] + 1

    def __exit__(self, *_: object) -> None:
        self._header[layout.EMULATOR] = 0


class InputMark:
    """What the ring's header says of the last write with a token, for the next worker."""

    __slots__ = ("_header",)

    def __init__(self, header: memoryview) -> None:
        self._header = header

    @property
    def token(self) -> int:
        """The token; 0 if there was no such write."""
        return int(self._header[layout.WRITE_TOKEN])

    @property
    def left(self) -> int:
        """How many bytes of it are not typed yet; or `INTERRUPTED`."""
        return int(self._header[layout.WRITE_LEFT])

    @left.setter
    def left(self, count: int) -> None:
        self._header[layout.WRITE_LEFT] = count

    def begin(self, token: int, size: int) -> None:
        """Record a write before it is typed."""
        # A worker that is killed between these has typed nothing of it, so it need not be known.
        self._header[layout.WRITE_TOKEN] = 0
        self._header[layout.WRITE_LEFT] = size
        self._header[layout.WRITE_TOKEN] = token


class SharedRing:
    """The worker's end of one ring file.

    The caller keeps `fd`. `retained` consumed bytes stay readable. `arm` requests a wake-up from
    the keeper, given the header; `on_room` tells it of room after it had stopped reading for lack
    of it. `adopted`: an earlier worker has consumed from the file.
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
        #: The position just past the last byte consumed.
        self.position = 0
        #: The position just past the last byte written before the take-over; 0 without one.
        self.restored_end = 0
        self._peeked = 0
        #: Queries before this position have been answered by an earlier worker.
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
        """The position just past the last byte that can be read."""
        return max(self.position, self.restored_end)

    @property
    def head(self) -> int:
        """The position just past the last byte that the keeper has written."""
        return int(self._header[layout.HEAD])

    @property
    def written_at(self) -> float | None:
        """The `time.monotonic` time of the keeper's last write."""
        return self._header[layout.WRITTEN_AT] / 1e6 or None

    @property
    def unread(self) -> int:
        """The number of bytes written and not consumed."""
        return int(self._header[layout.HEAD]) - self.position

    @property
    def has_unread(self) -> bool:
        """Whether there is unread output, or the keeper has it in its hands."""
        # Read RESERVED before `head`: if a write ends between the two reads, they differ.
        reserved = int(self._header[layout.RESERVED])
        return reserved != self.head or self.unread > 0

    def peek(self, max_bytes: int) -> bytes:
        """Return the next bytes to consume: all before `replied_until`, or all after it."""
        if self.position < self.replied_until:
            max_bytes = min(max_bytes, self.replied_until - self.position)
        data = self._copy(self.position, min(max_bytes, self.unread))
        self._peeked = self.position + len(data)
        return data

    def advance(self, count: int) -> None:
        """Consume the next `count` bytes, and release the oldest that no reader holds."""
        self.position += count
        if self._header[layout.REPLIED] > self.position >= self.replied_until:
            # `claim_reply` has recorded all queries in the peeked bytes as answered, but not all of
            # these bytes were consumed.
            self._header[layout.REPLIED] = self.position
        self._release()

    def give_back_room(self) -> None:
        """Return the memory of released bytes, once the keeper writes no more."""
        if self.position > _TRIM_MIN_BYTES:
            self._file.release_free_pages()

    def arm(self) -> bool:
        """Request a wake-up at the next write; False if there is unread output already."""
        self._arm(self._header)
        return int(self._header[layout.HEAD]) == self.position

    def encode_input(self, data: bytes) -> bytes:
        """Return UTF-8 input in the encoding of the program's output."""
        return encode_input(data, self._header[layout.ENCODING])

    @property
    def emulator_mark(self) -> EmulatorMark:
        return EmulatorMark(self._header)

    @property
    def input_mark(self) -> InputMark:
        return InputMark(self._header)

    @property
    def has_emulator_mark(self) -> bool:
        """Whether an earlier worker crashed, or several were killed, while the emulator ran.

        The keeper clears the flag after any other end of a worker.
        """
        return bool(self._header[layout.EMULATOR])

    def claim_reply(self) -> bool:
        """Return whether to answer a query in the bytes peeked last, and record it."""
        if self.position < self.replied_until:
            return False
        self._header[layout.REPLIED] = self._peeked
        return True

    def hold(self, reader: object, position: int) -> None:
        """Keep the bytes from `position` on readable, until the next `hold` or `let_go`."""
        self._holds[reader] = position
        self._release()

    def let_go(self, reader: object) -> None:
        if self._holds.pop(reader, None) is not None:
            self._release()

    def read(self, since: int, max_bytes: int | None = None) -> Slice:
        """Return the readable bytes from `since` on. Raises `ValueError` as `bounds`."""
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
