"""Read the output of a terminal: the end of the raw output, or a part as text or as raw bytes.

A terminal's output has three views. This module has functions for the first two:

- *raw*: the bytes in the ring, with escape sequences. `raw` returns the last bytes as a string, and
  `since` returns a part;
- *text*: the output without escape sequences, as agents read it. `Terminal.text` (`text.stream`)
  has the text of the whole output; `since` converts a part of the ring's bytes;
- *screen*: the current screen, which `Terminal.emulator` (`vt`) has.

A position is always an offset in bytes from the beginning of the raw output, even if a part is
returned as text. The text of a part depends only on the bytes of that part: a carriage return in it
does not overwrite text of earlier parts. Rows that the part draws again are in its text once, even
if earlier parts had them too.
"""

from typing import NamedTuple

from acpterm.terminal.terminal import Terminal
from acpterm.terminal.text import utf8
from acpterm.terminal.text.slices import SLICE_MIN_BYTES, resync, text_of

__all__ = ["Part", "last", "raw", "since"]


class Part(NamedTuple):
    """A part of the output, as text or raw; the result of `since`."""

    data: bytes
    """The text in UTF-8, or the raw bytes."""
    position: int
    """The position at which the next part begins. Pass it to `since` to get that part."""
    lost: int
    """The number of bytes between the requested position and the beginning of `data`: bytes that
    are no longer retained, and the rest of a cut escape sequence or line."""


def raw(terminal: Terminal) -> tuple[str, bool]:
    """Return the end of the raw output, with escape sequences, as a string.

    Also returns whether the beginning of the output is missing. The string has at most
    `terminal.limit` bytes in UTF-8, and begins with a whole character. Invalid bytes become U+FFFD.
    Until the program has exited, an incomplete character at the end is left out.
    """
    ring, limit = terminal.ring, terminal.limit
    start = max(ring.start, ring.end - limit)
    data = ring.read(start).data
    if start:
        data = data[utf8.boundary(data[:3], 0) :]
    if terminal.exit is None:
        data = data[: utf8.whole(data)]
    text, cut = last(data.decode(errors="replace"), limit)
    return text, start > 0 or cut


def last(text: str, limit: int) -> tuple[str, bool]:
    """Return the end of `text`, at most `limit` bytes in UTF-8, and whether `text` was cut."""
    data = text.encode()
    cut = utf8.boundary(data, max(0, len(data) - limit))
    return data[cut:].decode(), cut > 0


def since(terminal: Terminal, position: int | None, max_bytes: int, *, as_text: bool) -> Part:
    """Return at most `max_bytes` of output from `position` on, as text or raw.

    If `position` is None, starts at the oldest retained byte.

    If a part of text would end within a character or an escape sequence, it ends before that
    character or sequence, and the next part begins there. Exception: if the program has exited and
    the part reaches the end of the output, an incomplete character or sequence at the end belongs
    to the part, since its rest will never come. If a part of text would be empty because an escape
    sequence is longer than `max_bytes`, more bytes are read.

    Raises `ValueError` if `position` is negative or after the end of the output.
    """
    asked = terminal.ring.start if position is None else position
    data, start, lost = terminal.ring.read(asked, max_bytes)
    if not as_text:
        return Part(data, start + len(data), lost)
    skipped = resync(data) if lost or (position is None and start) else 0
    text, used = _text(terminal, data[skipped:], start + len(data))
    while not used and not skipped and len(data) == max_bytes < SLICE_MIN_BYTES:
        max_bytes = min(2 * max_bytes, SLICE_MIN_BYTES)
        data = terminal.ring.read(start, max_bytes).data
        text, used = _text(terminal, data, start + len(data))
    return Part(text.encode(), start + skipped + used, lost + skipped)


def _text(terminal: Terminal, data: bytes, end: int) -> tuple[str, int]:
    final = terminal.exit is not None and end == terminal.ring.end
    return text_of(data, final=final, size=(terminal.cols, terminal.rows))
