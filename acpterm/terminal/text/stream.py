"""The text of a terminal, as agents read it.

Bytes go through `utf8` (whole characters), `controls` (no escape sequences), `line` (what
CR, BS and EL do to the current line) into `tail` (the lines that are over).

States and rules:

- The text is what the lines that are over show, and the current line. The view keeps the
  last `limit` UTF-8 bytes of it, cut at the beginning at a character boundary: at the limit
  nothing is cut, one byte over the limit a character is.
- Ten megabytes of progress bar are one line, and push out no other.
- `truncated` is true once something is gone from the beginning: when the lines that are
  over are longer than the limit, or when they and the current line were when someone asked.
  It stays true. None of this depends on how the bytes were cut into `feed`s.
- Where much is fed at once, the text begins anew at a line that depends on nothing before it, if
  the lines after that are over the limit: the same text, for less.
- Simple output (`feed_simple`) *waits* as it is until somebody asks, or `settle` is called. That
  behind which lines wait that are over the limit is dropped without a look.
- A character or an escape sequence that is not yet whole is no part of the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from acpterm.terminal.text import simple_output, utf8
from acpterm.terminal.text.controls import SEQUENCE_MAX, Controls, is_ground
from acpterm.terminal.text.line import ERASE_LEFT, ERASE_LINE, ERASE_RIGHT, Line
from acpterm.terminal.text.tail import Tail
from acpterm.terminal.text.utf8 import Utf8

if TYPE_CHECKING:
    import mmap

#: A slice at least this long always has a part that `text_of` can make text of. Bytes.
SLICE_MIN = 4 * SEQUENCE_MAX + 4
#: How far `resync` looks for the end of a line, or of a string. Bytes.
_RESYNC_MAX = 4096

#: The size of pieces that a processor's caches hold. Bytes.
_PIECE_BYTES = 64 * 1024
#: Output that is hardly text would take up much memory while it waits: it is at most this many
#: times as long as its text is at least, and a piece.
_DEFERRED_RATIO = 4
#: What a text of whatever limit has to be fed at once to begin anew. Bytes.
_MARGIN = 4096

_ERASE_RIGHT = ERASE_RIGHT.encode()
_MOVES = (b"\b", ERASE_LEFT.encode(), ERASE_LINE.encode())

_CSI_REST = re.compile(rb"(?:\[[0-?]*|[0-9;:<=>?]+)[ -/]*[@-~]|[mK]")
_STRING_REST = re.compile(rb"[^\x1b\n]*(?:\a|\x1b\\)")


class _Deferred(NamedTuple):
    """A piece of simple output, and how many bytes of text it is at least."""

    data: bytes
    text_min: int


class TextView:
    """The last `limit` bytes of a terminal's text; limit 0 keeps none of it.

    `truncated`: whether what comes first is not the beginning.
    """

    __slots__ = (
        "_cached",
        "_controls",
        "_deferred",
        "_deferred_bytes",
        "_deferred_text_min",
        "_enough",
        "_limit",
        "_line",
        "_tail",
        "_truncated",
        "_utf8",
        "_version",
    )

    def __init__(self, limit: int, *, truncated: bool = False) -> None:
        if limit < 0:
            raise ValueError(f"the limit of a text must be 0 bytes or more, not {limit}")
        self._limit = limit
        #: How much there has to be to begin anew; doubled when that was too little. Bytes.
        self._enough = limit + limit // 8 + _MARGIN
        self._utf8 = Utf8()
        self._controls = Controls()
        self._line = Line()
        self._tail = Tail(limit)
        self._truncated = truncated
        self._version = 0
        self._cached: str | None = ""
        # Simple output behind the text, its size, and how many bytes of text it is at least.
        self._deferred: list[_Deferred] = []
        self._deferred_bytes = 0
        self._deferred_text_min = 0

    @property
    def limit(self) -> int:
        """The most UTF-8 bytes that `text` returns."""
        return self._limit

    @property
    def version(self) -> int:
        """A number that grows when `text` or `truncated` may have changed."""
        return self._version

    @property
    def truncated(self) -> bool:
        """Whether anything a reader would have seen is gone; once true, it stays so."""
        if not self._truncated:
            self._flush_all()
            shown = len(self._line.text().encode())
            self._truncated = self._tail.total + shown > self._limit
        return self._truncated

    @property
    def retained_bytes(self) -> int:
        """The bytes that are held to make the text of, whether they wait or not."""
        return self._tail.retained + self._deferred_bytes

    @property
    def size(self) -> int:
        """The length of `text` in UTF-8 bytes, at little cost if none of it waits."""
        self._flush_all()
        kept, line = self._parts()
        return kept + len(line)

    def text(self) -> str:
        """Return the text; the same object while nothing has been fed or forgotten."""
        if self._cached is None:
            # Whoever reads the text has been told of what is not there.
            self._truncated = self.truncated
            self._flush_all()
            self._cached = self._tail.last(*self._parts()).decode()
        return self._cached

    def forget(self) -> None:
        """Hold no text that was asked for: to be called when it is not asked for often."""
        self._cached = None

    def _parts(self) -> tuple[int, bytes]:
        """Return how many bytes the text has of the lines that are over, and the current line."""
        line = self._line.text().encode()
        if len(line) > self._limit:
            return 0, line[utf8.boundary(line, len(line) - self._limit) :]
        return self._tail.fit(self._limit - len(line)), line

    def feed(
        self, data: bytes | bytearray | memoryview | mmap.mmap, size: int | None = None
    ) -> bool:
        """Take what the terminal printed next: all of `data`, or its first `size` bytes.

        Of much more at once than the limit, what is out of sight by then is not looked at where
        the text can begin anew: whether it did.
        """
        if size is None:
            size = len(data)
        self._flush_all()
        if size > self._enough:
            return self._feed_much(bytes(data) if isinstance(data, memoryview) else data, size)
        if size:
            self._take(self._utf8.feed(bytes(data[:size])))
        return False

    def feed_simple(self, data: bytes) -> None:
        """Take simple output (`simple_output`), as `feed` does, for less."""
        least = simple_output.text_bytes_min(data)
        is_clean = bool(self._deferred) or not (self._controls.inside or self._utf8.has_incomplete)
        if least is None or not is_clean or not self._may_defer(len(data), least):
            self.feed(data)
            return
        self._version += 1
        self._cached = None
        if self._deferred and len(self._deferred[-1].data) + len(data) <= _PIECE_BYTES:
            last = self._deferred.pop()
            self._deferred.append(_Deferred(last.data + data, last.text_min + least))
        else:
            self._deferred.append(_Deferred(data, least))
        self._deferred_bytes += len(data)
        self._deferred_text_min += least
        while self._deferred_text_min - self._deferred[0].text_min > self._limit:
            self._pop_deferred()
            # All before it is out of reach too.
            self._truncated = True
            self._line = Line()
            self._tail = Tail(self._limit)

    def _may_defer(self, size: int, least: int) -> bool:
        """Return whether `size` bytes more, `least` of them text, are not too many to wait."""
        held = self._deferred_bytes + size
        return held <= _DEFERRED_RATIO * (self._deferred_text_min + least) + _PIECE_BYTES

    def _pop_deferred(self) -> bytes:
        data, least = self._deferred.pop(0)
        self._deferred_bytes -= len(data)
        self._deferred_text_min -= least
        return data

    @property
    def has_deferred(self) -> bool:
        """Whether there is output that `settle` would make text of."""
        return bool(self._deferred)

    def flush(self) -> bool:
        """Make text of a piece of the output that waits; return whether more does."""
        if self._deferred:
            data = self._pop_deferred()
            first, end = data.find(b"\n") + 1, data.rfind(b"\n") + 1
            self._take(data[:first])
            self._tail.add(simple_output.text_of(data[first:end]))
            self._take(data[end:])
        return bool(self._deferred)

    def _flush_all(self) -> None:
        while self.flush():
            pass

    def _feed_much(self, data: bytes | bytearray | mmap.mmap, size: int) -> bool:
        begin = fresh_start(data, size, self._enough)
        if begin:
            view = TextView(self._limit)
            view._feed_pieces(data, begin, size)
            # Then all that is shown, and more, is in lines that were over behind `begin`.
            if view._tail.total > self._limit:
                self._utf8, self._controls, self._line = view._utf8, view._controls, view._line
                self._tail = view._tail
                self._version += 1
                self._cached = None
                return True
            self._enough *= 2
        self._feed_pieces(data, 0, size)
        return False

    def _feed_pieces(self, data: bytes | bytearray | mmap.mmap, begin: int, end: int) -> None:
        for at in range(begin, end, _PIECE_BYTES):
            self._take(self._utf8.feed(bytes(data[at : min(end, at + _PIECE_BYTES)])))

    def finish(self) -> None:
        """Take the end of the stream: a character still incomplete becomes U+FFFD."""
        self._take(self._utf8.finish())

    def _take(self, characters: bytes) -> None:
        program = self._controls.feed(characters) if characters else b""
        if not program:
            return
        self._version += 1
        self._cached = None
        returns = program.endswith(b"\r")
        if returns:
            program = program[:-1]
        if b"\r" in program:
            self._commit(self._line.run(program.decode()))
        elif self._controls.plain:
            self._append(program)
        elif any(move in program for move in _MOVES):
            self._commit(self._line.run(program.decode()))
        elif _ERASE_RIGHT in program:
            self._erase_right(program)
        else:
            self._append(program)
        if returns:
            self._line.carriage_return()

    def _append(self, text: bytes) -> None:
        """Write `text`, which has no controls but TAB and LF."""
        begin, end = 0, text.rfind(b"\n") + 1
        if end:
            if not self._line.appending:
                begin = text.find(b"\n")
                self._commit(self._line.write(text[:begin].decode()))
            self._commit(self._line.end())
            self._tail.add(text[begin:end])
        if end < len(text):
            self._commit(self._line.write(text[end:].decode()))

    def _erase_right(self, program: bytes) -> None:
        """Do `program`, whose only controls are TAB, LF and ERASE_RIGHT.

        With the cursor at the end of the line, as compilers and grep have it, there is
        nothing at the right of it.
        """
        if not self._line.appending:
            head, newline, program = program.partition(b"\n")
            self._commit(self._line.run((head + newline).decode()))
            if not program:
                return
        self._append(program.replace(_ERASE_RIGHT, b""))

    def _commit(self, text: str) -> None:
        if text:
            self._tail.add(text.encode())


def text_of(data: bytes, *, final: bool) -> tuple[str, int]:
    """Return the text of a slice of the stream, and how many bytes of it that is.

    For readers that follow a stream slice by slice: `data` begins where the last slice's
    count ended (or see `resync`), and CR, BS and EL act within the slice. Unless it is
    `final`, an incomplete character, escape sequence or CRLF at the end is not counted, so
    that the next slice can begin with it. A slice of SLICE_MIN bytes counts some of them.
    """
    end = len(data) if final else _clean_end(data)
    if not end and len(data) >= SLICE_MIN:
        end = len(data)
    # No text is longer than three bytes, U+FFFD, for one.
    view = TextView(3 * end)
    view.feed(data[:end])
    view.finish()
    return view.text(), end


def _clean_end(data: bytes) -> int:
    end = utf8.whole(data)
    begin = data.rfind(b"\x1b")
    if begin >= 0:
        controls = Controls()
        controls.feed(Utf8().feed(data[begin:]))
        if controls.inside:
            end = begin
    return end - data.endswith(b"\r", 0, end)


def resync(data: bytes) -> int:
    """Return how many leading bytes to skip when what was before `data` is lost.

    A line is the only thing sure to begin afresh, so: up to the first LF, if there is one
    within 4 KiB. Else what looks like the rest of a string or of a CSI sequence, or of a
    character; text that looks like one is taken for one, as text is missing there anyway.
    """
    newline = data.find(b"\n", 0, _RESYNC_MAX)
    if newline >= 0:
        return newline + 1
    if rest := _STRING_REST.match(data, 0, _RESYNC_MAX):
        return rest.end()
    if rest := _CSI_REST.match(data, 0, _RESYNC_MAX):
        return rest.end()
    return utf8.boundary(data[:3], 0)


def fresh_start(data: bytes | bytearray | mmap.mmap, size: int, keep: int) -> int:
    """Return where in the first `size` bytes of `data` the text begins anew, or 0.

    There are `keep` bytes or more to come, and it is behind an LF that is sure to have ended a
    line, whatever came before `data`.
    """
    newline = data.rfind(b"\n", 0, max(0, size - keep))
    if newline < 0 or not is_ground(data[max(0, newline - 4 * SEQUENCE_MAX) : newline]):
        return 0
    return newline + 1
