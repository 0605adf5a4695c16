"""The text of a terminal's whole output, as agents read it: `TextView` converts and retains it.

The bytes of the output go through `utf8` (whole characters), `controls` (no escape sequences) and
`line` (what CR, BS and EL do to the current line) into `tail` (the finished lines). `redraw` takes
lines out of `tail` while the program draws them again.

- The text consists of the finished lines and the current line. While rows are redrawn, all of them
  are the current line. The view keeps the last `limit` UTF-8 bytes, cut at a character. A text of
  exactly `limit` bytes is not cut. A progress bar counts only with its current length.
- `truncated` is true if the finished lines exceed the limit, or with the current line at a call of
  `truncated` or `text` (that line may get shorter later). Once true, it stays true, however the
  bytes were divided into calls of `feed`.
- If much output is fed at once, the view skips its beginning and *restarts* at a line that does not
  depend on earlier output, if the text from there on exceeds the limit. The text is the same.
- Simple output (`feed_simple`) is *deferred*: stored unprocessed until the text is read, or `flush`
  is called. Output that is followed by more deferred text than the limit is never processed.
- An incomplete character or escape sequence at the end of the output is not part of the text yet.
"""

from __future__ import annotations

from typing import NamedTuple

from acpterm.terminal.text import simple_output, utf8
from acpterm.terminal.text.controls import SEQUENCE_MAX, Controls, is_ground, moves_rows
from acpterm.terminal.text.line import ERASE_LEFT, ERASE_LINE, ERASE_RIGHT, Line
from acpterm.terminal.text.redraw import (
    DOWN,
    ERASE_BELOW,
    ROW_MARKS,
    UNFOLLOWED,
    UP,
    Redraw,
    without_unknown,
)
from acpterm.terminal.text.tail import Tail
from acpterm.terminal.text.utf8 import Utf8

#: Output is processed in pieces of this size, which fit into a processor's caches.
_PIECE_BYTES = 64 * 1024
#: Deferred output takes at most this many times the bytes of its text, plus one piece. Without this
#: limit, output with hardly any text, such as colours, would take up much memory.
_DEFERRED_RATIO = 4
# Without restarts, coloured output takes up to four times as long with a limit of a few KB.
#: The view restarts only if `feed` gets at least this many bytes more than the limit at once.
_RESTART_MARGIN_BYTES = 4096
#: How much of the beginning of the output is kept.
_HEAD_BYTES = 8192

_ERASE_RIGHT = ERASE_RIGHT.encode()
_UP, _DOWN = UP.encode(), DOWN.encode()
_ERASE_BELOW, _UNFOLLOWED = ERASE_BELOW.encode(), UNFOLLOWED.encode()
_MOVES = (b"\b", ERASE_LEFT.encode(), ERASE_LINE.encode())


class _Deferred(NamedTuple):
    """Simple output that is stored unprocessed."""

    data: bytes
    text_min: int  # bytes of its text, at least


class Beginning(NamedTuple):
    """The first 8 KiB of the output as text, at most a sixteenth of what the view retains."""

    text: str
    total_lines: int


class TextView:
    """The last `limit` bytes of a terminal's text; with a limit of 0, no text.

    Without `size`, movements to other rows are ignored. `truncated`: the first output is not fed.
    """

    __slots__ = (
        "_beginning",
        "_cached",
        "_controls",
        "_deferred",
        "_deferred_bytes",
        "_deferred_text_min",
        "_head",
        "_limit",
        "_line",
        "_line_ends",
        "_redraw",
        "_restart_bytes",
        "_tail",
        "_truncated",
        "_utf8",
        "redraws",
    )

    def __init__(
        self,
        limit: int,
        *,
        size: tuple[int, int] | None = None,
        truncated: bool = False,
        restart_margin_bytes: int = _RESTART_MARGIN_BYTES,
    ) -> None:
        if limit < 0:
            raise ValueError(f"the limit of a text must be 0 bytes or more, not {limit}")
        self._limit = limit
        #: If more bytes than this are fed at once, the view restarts. Doubled when a restart fails.
        self._restart_bytes = limit + limit // 8 + restart_margin_bytes
        self._utf8 = Utf8()
        self._controls = Controls()
        self._line = Line()
        self._tail = Tail(limit)
        self._redraw = (
            Redraw(self._tail, self._line, size, complete=not truncated) if size else None
        )
        self._truncated = truncated
        # The beginning of the output, and the number of its line ends; None if not all is fed.
        self._head: bytes | None = None if truncated else b""
        self._beginning: str | None = None
        self._line_ends = 0
        #: Whether the data fed last moved the cursor between rows, which takes long to process.
        self.redraws = False
        self._cached: str | None = ""
        # Deferred output, its number of bytes, and the minimum number of bytes of its text.
        self._deferred: list[_Deferred] = []
        self._deferred_bytes = 0
        self._deferred_text_min = 0

    @property
    def truncated(self) -> bool:
        """Whether the beginning of the text was dropped. Once true, this stays true."""
        if not self._truncated:
            self._flush_all()
            line_bytes = len(self._current().encode())
            over = self._tail.total + line_bytes > self._limit
            self._truncated = over or self._tail.gone > 0
        return self._truncated

    @property
    def dropped_bytes(self) -> int:
        """The bytes of text dropped; too low if output was never processed."""
        self._flush_all()
        kept, line = self._parts()
        return self._tail.total + len(self._current().encode()) - kept - len(line)

    def beginning(self) -> Beginning | None:
        """Return the beginning of the text; None if the view has not got the first output."""
        if self._head is None:
            return None
        # Each poll of a long output asks for it.
        if self._beginning is None:
            view = TextView(2 * _HEAD_BYTES)
            view.feed(self._head)
            self._beginning = view.text()
        return Beginning(self._beginning, self._line_ends)

    def _count(self, data: bytes) -> None:
        if self._head is not None:
            self._line_ends += data.count(b"\n")
            room = min(_HEAD_BYTES, self._limit // 16) - len(self._head)
            if room > 0:
                self._head += data[:room]
                self._beginning = None

    @property
    def retained_bytes(self) -> int:
        """The number of bytes in memory."""
        return self._tail.retained + self._deferred_bytes

    def text(self) -> str:
        """Return the text: the same `str` object until the text changes or `forget` is called."""
        if self._cached is None:
            # Set `truncated` now: later the current line may get shorter and fit into the limit.
            self._truncated = self.truncated
            self._flush_all()
            self._cached = without_unknown(self._tail.last(*self._parts()).decode())
        return self._cached

    def forget(self) -> None:
        """Drop the cached result of `text`, which is a second copy of the text in memory."""
        self._cached = None

    def _parts(self) -> tuple[int, bytes]:
        """Return the bytes of finished lines within the limit, and the current line, cut to it."""
        line = self._current().encode()
        if len(line) > self._limit:
            return 0, line[utf8.boundary(line, len(line) - self._limit) :]
        return self._tail.fit(self._limit - len(line)), line

    def _current(self) -> str:
        if self._redraw and self._is_redrawing:
            return self._redraw.text()
        return self._line.text()

    @property
    def _is_redrawing(self) -> bool:
        return self._redraw is not None and self._redraw.active

    def resize(self, cols: int, rows: int) -> None:
        if self._redraw:
            self._redraw.resize(cols, rows)
            self._cached = None

    def feed(self, data: bytes) -> None:
        self._flush_all()
        self._count(data)
        self.redraws = False
        if len(data) > self._restart_bytes:
            self._feed_much(data)
        elif data:
            self._take(self._utf8.feed(data))

    def feed_simple(self, data: bytes) -> None:
        """Like `feed`, for simple output: stores it unprocessed if possible."""
        text_min = simple_output.text_bytes_min(data)
        is_inside = self._controls.inside or self._utf8.incomplete_bytes > 0 or self._is_redrawing
        is_clean = bool(self._deferred) or not is_inside
        if text_min is None or not is_clean or not self._may_defer(len(data), text_min):
            self.feed(data)
            return
        self._cached = None
        self._count(data)
        if self._deferred and len(self._deferred[-1].data) + len(data) <= _PIECE_BYTES:
            last = self._deferred.pop()
            self._deferred.append(_Deferred(last.data + data, last.text_min + text_min))
        else:
            self._deferred.append(_Deferred(data, text_min))
        self._deferred_bytes += len(data)
        self._deferred_text_min += text_min
        while self._deferred_text_min - self._deferred[0].text_min > self._limit:
            self._pop_deferred()
            # All text before the removed piece is beyond the limit too.
            self._truncated = True
            self._line = Line()
            self._tail = Tail(self._limit)
            if self._redraw:
                self._redraw = Redraw(self._tail, self._line, self._redraw.size, complete=False)

    def _may_defer(self, size: int, text_min: int) -> bool:
        """Return whether output of `size` bytes may be stored without too much memory."""
        held = self._deferred_bytes + size
        return held <= _DEFERRED_RATIO * (self._deferred_text_min + text_min) + _PIECE_BYTES

    def _pop_deferred(self) -> bytes:
        data, text_min = self._deferred.pop(0)
        self._deferred_bytes -= len(data)
        self._deferred_text_min -= text_min
        return data

    @property
    def has_deferred(self) -> bool:
        return bool(self._deferred)

    def flush(self) -> bool:
        """Process one piece of the deferred output; return whether more is left."""
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

    def _feed_much(self, data: bytes) -> None:
        begin = fresh_start(data, self._restart_bytes)
        if begin and self._ends_redrawing(data, begin):
            size = self._redraw.size if self._redraw else None
            view = TextView(self._limit, size=size, truncated=True)
            view._feed_pieces(data, begin)
            # Then the text consists only of lines that were finished after `begin`.
            if view._tail.total > self._limit and not view.redraws:
                self._utf8, self._controls, self._line = view._utf8, view._controls, view._line
                self._tail, self._redraw = view._tail, view._redraw
                self._cached = None
                return
            self._restart_bytes *= 2
        self._feed_pieces(data, 0)

    def _ends_redrawing(self, data: bytes, end: int) -> bool:
        """Return whether no rows are redrawn at `end` of `data`: after enough lines, none are."""
        if not self._redraw:
            return True
        begin = end
        for _ in range(self._redraw.size[1] + 1):
            begin = data.rfind(b"\n", 0, begin)
            if begin < 0:
                return not self._redraw.active and not moves_rows(data, 0, end)
        return not moves_rows(data, begin, end)

    def _feed_pieces(self, data: bytes, begin: int) -> None:
        for at in range(begin, len(data), _PIECE_BYTES):
            self._take(self._utf8.feed(data[at : at + _PIECE_BYTES]))

    def finish(self) -> None:
        """Process the end of the output: an incomplete character becomes U+FFFD."""
        self._take(self._utf8.finish())

    def _take(self, characters: bytes) -> None:
        program = self._controls.feed(characters) if characters else b""
        if not program:
            return
        self._cached = None
        returns = program.endswith(b"\r")
        if returns:
            program = program[:-1]
        if self._redraw and (self._redraw.active or not self._controls.plain):
            self._take_rows(self._redraw, program)
        else:
            self._apply(program if self._controls.plain else program.translate(None, ROW_MARKS))
        if returns:
            self._line.carriage_return()

    def _take_rows(self, redraw: Redraw, program: bytes) -> None:
        if redraw.active or _UP in program or _DOWN in program:
            self.redraws = True
            redraw.run(program.decode())
            return
        program = program.replace(_ERASE_BELOW, _ERASE_RIGHT)
        before, mark, program = program.rpartition(_UNFOLLOWED)
        if mark:
            self._apply(before.replace(_UNFOLLOWED, b""))
            redraw.begin_screen()
        self._apply(program)

    def _apply(self, program: bytes) -> None:
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

    def _append(self, text: bytes) -> None:
        """Write `text`, whose only controls are TAB and LF, at the cursor."""
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
        """Write `program`, whose only controls are TAB, LF and ERASE_RIGHT, at the cursor."""
        # After its first LF nothing is to the right of the cursor, so each ERASE_RIGHT there is
        # dropped. For speed: many programs use it.
        if not self._line.appending:
            head, newline, program = program.partition(b"\n")
            self._commit(self._line.run((head + newline).decode()))
            if not program:
                return
        self._append(program.replace(_ERASE_RIGHT, b""))

    def _commit(self, text: str) -> None:
        if text:
            self._tail.add(text.encode())


def fresh_start(data: bytes, keep: int) -> int:
    """Return an index at which a line begins, whatever came before; 0 if none is found.

    At least `keep` bytes follow it.
    """
    newline = data.rfind(b"\n", 0, max(0, len(data) - keep))
    if newline < 0 or not is_ground(data[max(0, newline - 4 * SEQUENCE_MAX) : newline]):
        return 0
    return newline + 1
