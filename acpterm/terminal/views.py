"""The views of a terminal's output: text, raw and screen.

- *text*: what agents read. It is made while the output is consumed (`text`), with its own
  retention;
- *raw*: the bytes in the ring, with escape sequences;
- *screen*: the present screen of the VT emulator (`vt`).

`since` reads a part of the stream. Positions are those of the ring in each view. A part of text is
the text of its bytes alone: a carriage return does not affect an earlier part.
"""

from typing import NamedTuple

from acpterm.terminal.terminal import Terminal
from acpterm.terminal.text import utf8
from acpterm.terminal.text.slices import SLICE_MIN_BYTES, resync, text_of

__all__ = ["Part", "last", "raw", "since"]


class Part(NamedTuple):
    """A part of the stream."""

    data: bytes
    """UTF-8 for text, unchanged bytes for raw."""
    position: int
    """The position of the next part."""
    lost: int
    """How many bytes after the position asked for are lost."""


def raw(terminal: Terminal) -> tuple[str, bool]:
    """Return the raw output as text, and whether its beginning is missing.

    It has at most the terminal's limit in UTF-8 bytes, cut at a character. Invalid bytes are
    U+FFFD.
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
    """Return the last `limit` UTF-8 bytes of a text, cut at a character; and whether it was cut."""
    data = text.encode()
    cut = utf8.boundary(data, max(0, len(data) - limit))
    return data[cut:].decode(), cut > 0


def since(terminal: Terminal, position: int | None, max_bytes: int, *, as_text: bool) -> Part:
    """Return at most `max_bytes` from `position` on; None is the oldest retained position.

    Text ends before an incomplete character or escape sequence, which is in the next part then. A
    sequence longer than `max_bytes` is returned whole all the same. Raises `ValueError` for a
    position that the stream has not reached.
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
    return text_of(data, final=terminal.exit is not None and end == terminal.ring.end)
