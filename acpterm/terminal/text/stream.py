"""The text of a terminal's whole output, as agents read it: `TextView` converts and retains it.

The bytes of the output go through `utf8` (whole characters), `controls` (no escape sequences) and
`line` (what CR, BS and EL do to the current line) into `tail` (the finished lines).

Rules:

- The text consists of the finished lines and the current line. The view keeps the last `limit`
  UTF-8 bytes of the text, cut at a character boundary. A text of exactly `limit` bytes is not cut.
- A line that is overwritten, such as a progress bar, counts only with its current length.
- `truncated` is true if the finished lines exceed the limit, or if finished lines and current line
  together exceeded the limit at a call of `truncated` or `text` (the current line may get shorter
  later). Once true, it stays true. It does not depend on how the bytes were divided into calls of
  `feed`.
- If much output is fed at once, the view skips its beginning and *restarts* at a line that does not
  depend on earlier output, provided that the text from that line on exceeds the limit. The
  text is the same as without a restart.
- Simple output (`feed_simple`) is *deferred*: stored unprocessed until the text is read, or `flush`
  is called. Output that is followed by more deferred text than the limit is dropped unprocessed.
- An incomplete character or escape sequence at the end of the output is not part of the text yet.
"""

from __future__ import annotations

from typing import NamedTuple

from acpterm.terminal.text import simple_output, utf8
from acpterm.terminal.text.controls import SEQUENCE_MAX, Controls, is_ground
from acpterm.terminal.text.line import ERASE_LEFT, ERASE_LINE, ERASE_RIGHT, Line
from acpterm.terminal.text.tail import Tail
from acpterm.terminal.text.utf8 import Utf8

#: Output is processed in pieces of this size, which fit into a processor's caches.
_PIECE_BYTES = 64 * 1024
#: Deferred output takes at most this many times the bytes of its text, plus one piece. Without this
#: limit, output with hardly any text, such as colours, would take up much memory.
_DEFERRED_RATIO = 4
#: The view restarts only if `feed` gets at least this many bytes more than the limit at once.
_RESTART_MARGIN_BYTES = 4096

_ERASE_RIGHT = ERASE_RIGHT.encode()
_MOVES = (b"\b", ERASE_LEFT.encode(), ERASE_LINE.encode())


class _Deferred(NamedTuple):
    """Simple output that is stored unprocessed."""

    data: bytes
    text_min: int
    """The minimum number of bytes of the output's text."""


class TextView:
    """The last `limit` bytes of a terminal's text; with a limit of 0, no text.

    The argument `truncated` must be true if the terminal's first output is not fed to the view. If
    data that is fed at once is longer than 9/8 of the limit plus `restart_margin_bytes`, the view
    may skip the beginning of the data. Raises `ValueError` if `limit` is negative.
    """

    __slots__ = (
        "_cached",
        "_controls",
        "_deferred",
        "_deferred_bytes",
        "_deferred_text_min",
        "_limit",
        "_line",
        "_restart_bytes",
        "_tail",
        "_truncated",
        "_utf8",
    )

    def __init__(
        self,
        limit: int,
        *,
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
        self._truncated = truncated
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
            line_bytes = len(self._line.text().encode())
            self._truncated = self._tail.total + line_bytes > self._limit
        return self._truncated

    @property
    def dropped_bytes(self) -> int:
        """The number of bytes of text that were dropped: those that `text` no longer contains.

        The number is too low if the view has skipped output or has dropped it unprocessed.
        """
        self._flush_all()
        kept, line = self._parts()
        return self._tail.total + len(self._line.text().encode()) - kept - len(line)

    @property
    def retained_bytes(self) -> int:
        """The number of bytes in memory: finished lines, and output that is stored unprocessed."""
        return self._tail.retained + self._deferred_bytes

    def text(self) -> str:
        """Return the text: the same `str` object until the text changes or `forget` is called."""
        if self._cached is None:
            # Set `truncated` now: later the current line may get shorter and fit into the limit.
            self._truncated = self.truncated
            self._flush_all()
            self._cached = self._tail.last(*self._parts()).decode()
        return self._cached

    def forget(self) -> None:
        """Drop the cached result of `text`, which is a second copy of the text in memory."""
        self._cached = None

    def _parts(self) -> tuple[int, bytes]:
        """Return how many bytes of finished lines are within the limit, and the current line.

        These bytes are the last ones of the finished lines. If the current line alone exceeds the
        limit, the beginning of that line is cut off, and the number is 0.
        """
        line = self._line.text().encode()
        if len(line) > self._limit:
            return 0, line[utf8.boundary(line, len(line) - self._limit) :]
        return self._tail.fit(self._limit - len(line)), line

    def feed(self, data: bytes) -> None:
        """Process `data`, the next output."""
        self._flush_all()
        if len(data) > self._restart_bytes:
            self._feed_much(data)
        elif data:
            self._take(self._utf8.feed(data))

    def feed_simple(self, data: bytes) -> None:
        """Process `data`, the next output, which must be simple output (see `simple_output`).

        This is faster than `feed`: if possible, `data` is stored unprocessed until the text is read
        or `flush` is called.
        """
        text_min = simple_output.text_bytes_min(data)
        is_inside = self._controls.inside or self._utf8.incomplete_bytes > 0
        is_clean = bool(self._deferred) or not is_inside
        if text_min is None or not is_clean or not self._may_defer(len(data), text_min):
            self.feed(data)
            return
        self._cached = None
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

    def _may_defer(self, size: int, text_min: int) -> bool:
        """Return whether the next output may be stored unprocessed.

        The next output has `size` bytes, with at least `text_min` bytes of text.
        """
        held = self._deferred_bytes + size
        return held <= _DEFERRED_RATIO * (self._deferred_text_min + text_min) + _PIECE_BYTES

    def _pop_deferred(self) -> bytes:
        data, text_min = self._deferred.pop(0)
        self._deferred_bytes -= len(data)
        self._deferred_text_min -= text_min
        return data

    @property
    def has_deferred(self) -> bool:
        """Whether there is output that is stored unprocessed, for `flush`."""
        return bool(self._deferred)

    def flush(self) -> bool:
        """Process one piece of the output that `feed_simple` has stored unprocessed.

        Returns whether more such output is left.
        """
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
        if begin:
            view = TextView(self._limit)
            view._feed_pieces(data, begin)
            # Then the text consists only of lines that were finished after `begin`.
            if view._tail.total > self._limit:
                self._utf8, self._controls, self._line = view._utf8, view._controls, view._line
                self._tail = view._tail
                self._cached = None
                return
            self._restart_bytes *= 2
        self._feed_pieces(data, 0)

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
        """Write `text`, whose only controls are TAB and LF, at the cursor of the current line."""
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
        """Write `program`, a part of the output, at the cursor of the current line.

        The only controls in `program` are TAB, LF and ERASE_RIGHT. ERASE_RIGHT erases the text to
        the right of the cursor. There is no such text after the first LF of `program`, so each
        ERASE_RIGHT there is dropped. The method is for speed: many programs use ERASE_RIGHT.
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


def fresh_start(data: bytes, keep: int) -> int:
    """Return an index in `data` at which a line begins, whatever output came before `data`.

    At least `keep` bytes follow the index. The byte before the index is an LF that is certainly not
    part of an escape sequence. If no such index is found, return 0.
    """
    newline = data.rfind(b"\n", 0, max(0, len(data) - keep))
    if newline < 0 or not is_ground(data[max(0, newline - 4 * SEQUENCE_MAX) : newline]):
        return 0
    return newline + 1
