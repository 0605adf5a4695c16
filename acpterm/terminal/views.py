"""Read the output of a terminal: the end of the raw output, or a part as text or as raw bytes.

A terminal's output has three views: *raw*, the bytes in the ring, with escape sequences; *text*,
without them, as agents read it (`Terminal.text` has all of it, and `since` converts a part); and
*screen*, which `Terminal.emulator` (`vt`) has.

A position is always an offset in bytes of the raw output, even if a part is returned as text. The
text of a part depends only on its own bytes: a carriage return in it overwrites nothing of earlier
parts, and rows that it draws again are in its text even if earlier parts had them too.
"""

from typing import NamedTuple

from acpterm.terminal.terminal import Terminal
from acpterm.terminal.text import utf8
from acpterm.terminal.text.slices import SLICE_MIN_BYTES, resync, text_of

__all__ = ["Part", "last", "raw", "since"]


class Part(NamedTuple):
    """A part of the output: UTF-8 text, or raw bytes."""

    data: bytes
    position: int  # where the next part begins
    # bytes asked for and missing: no longer retained, or the rest of a cut sequence or line
    lost: int


def raw(terminal: Terminal) -> tuple[str, bool]:
    """Return the end of the raw output, and whether its beginning is missing.

    At most `terminal.limit` bytes of UTF-8. Invalid bytes become U+FFFD; until the program has
    exited, an incomplete character at the end is left out.
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
    """Return the end of `text`, at most `limit` bytes in UTF-8, and whether it was cut."""
    data = text.encode()
    cut = utf8.boundary(data, max(0, len(data) - limit))
    return data[cut:].decode(), cut > 0


def since(terminal: Terminal, position: int | None, max_bytes: int, *, as_text: bool) -> Part:
    """Return at most `max_bytes` of output from `position` on (None: the oldest retained byte).

    A part of text ends before an incomplete character or sequence, with which the next part begins,
    unless the program has exited. If it would be empty because a sequence is longer than
    `max_bytes`, more is read. Raises `ValueError` if `position` is negative or after the end.
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
