"""The views of a terminal's output: text, raw and screen.

- *text*: the output without escape sequences, as agents read it. `text.stream` builds it while the
  output is consumed, and retains it independently of the ring;
- *raw*: the bytes in the ring, with escape sequences;
- *screen*: the current screen of the emulator (`vt`).

`since` reads a part of the output, as text or raw. Positions are always positions in the ring. A
part of text depends on its own bytes alone: a carriage return in it does not affect earlier parts.
"""

from typing import NamedTuple

from acpterm.terminal.terminal import Terminal
from acpterm.terminal.text import utf8
from acpterm.terminal.text.slices import SLICE_MIN_BYTES, resync, text_of

__all__ = ["Part", "last", "raw", "since"]


class Part(NamedTuple):
    """A part of the output, as text or raw: the result of `since`."""

    data: bytes
    """UTF-8 for text, unchanged bytes for raw."""
    position: int
    """The position at which the next part begins: pass it to `since` to read on."""
    lost: int
    """How many bytes from the requested position on are missing before `data`."""


def raw(terminal: Terminal) -> tuple[str, bool]:
    """Return the end of the raw output, decoded, with escape sequences.

    Also returns whether the beginning of the output is missing. The string has at most
    `terminal.limit` UTF-8 bytes, and begins with a whole character. Invalid bytes become U+FFFD.
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
    """Return the end of a text, at most `limit` UTF-8 bytes, and whether the text was cut."""
    data = text.encode()
    cut = utf8.boundary(data, max(0, len(data) - limit))
    return data[cut:].decode(), cut > 0


def since(terminal: Terminal, position: int | None, max_bytes: int, *, as_text: bool) -> Part:
    """Return at most `max_bytes` of output from `position` on, as text or raw.

    If `position` is None, starts at the oldest retained byte. Text ends before an incomplete
    character or escape sequence, so that the next part can begin with it. If the part would be
    empty because an escape sequence is longer than `max_bytes`, more bytes are read. Raises
    `ValueError` if the output has not reached `position`.
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
