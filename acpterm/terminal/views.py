"""The three ways to look at what a terminal's program wrote: text, raw, screen.

- *text*: what agents read; kept as the terminal goes along (`text`), so it has its own retention;
- *raw*: the bytes that the ring has, escape sequences and all;
- *screen*: what a window of the terminal's size shows now, by a VT emulator (`vt`).

`since` reads a part of the stream: positions are those of the ring, whatever the view. A part of
text is the text of these bytes alone: a carriage return does not reach back into an earlier part.
"""

from typing import NamedTuple

from acpterm.terminal.terminal import Terminal
from acpterm.terminal.text import utf8
from acpterm.terminal.text.slices import SLICE_MIN_BYTES, resync, text_of

__all__ = ["Part", "last", "raw", "since"]


class Part(NamedTuple):
    """A part of the stream."""

    data: bytes
    """As the view shows it: UTF-8 for text, the bytes themselves for raw."""
    position: int
    """Where the next part begins."""
    lost: int
    """How many bytes after the position asked for were gone already."""


def raw(terminal: Terminal) -> tuple[str, bool]:
    """Give the raw output as text, and whether some of it is gone.

    At most the terminal's limit in UTF-8 bytes, cut at a character; what is not UTF-8 is U+FFFD.
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
    """Give the last `limit` bytes of UTF-8 of a text, from a character on; whether it was cut."""
    data = text.encode()
    cut = utf8.boundary(data, max(0, len(data) - limit))
    return data[cut:].decode(), cut > 0


def since(terminal: Terminal, position: int | None, most: int, *, as_text: bool) -> Part:
    """Give at most `most` bytes that came after `position`; None is the oldest that are kept.

    Text ends before a character or escape sequence that is not complete yet; the rest comes with
    the next part. One that is longer than `most` is given whole all the same. Raises `ValueError`
    for a position that the stream has not reached.
    """
    asked = terminal.ring.start if position is None else position
    data, start, lost = terminal.ring.read(asked, most)
    if not as_text:
        return Part(data, start + len(data), lost)
    skipped = resync(data) if lost or (position is None and start) else 0
    text, used = _text(terminal, data[skipped:], start + len(data))
    while not used and not skipped and len(data) == most < SLICE_MIN_BYTES:
        most = min(2 * most, SLICE_MIN_BYTES)
        data = terminal.ring.read(start, most).data
        text, used = _text(terminal, data, start + len(data))
    return Part(text.encode(), start + skipped + used, lost + skipped)


def _text(terminal: Terminal, data: bytes, end: int) -> tuple[str, int]:
    return text_of(data, final=terminal.exit is not None and end == terminal.ring.end)
