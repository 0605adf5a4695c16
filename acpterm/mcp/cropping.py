"""Cropping of long output to a limit: its beginning and its end, with a note about the rest.

The beginning takes 20 % of the limit, the end 80 %. The output is cut at the ends of lines, unless
that would lose too much because of a long line.
"""

from typing import Final, NamedTuple

REST: Final = "run the command again with its output in a file, and read the file"
"""How to read what was left out, for sets without a tool that returns earlier output."""
HEAD_SHARE: Final = 0.2
# The share of the beginning or end that may be dropped to cut at the end of a line.
_LINE_SEARCH_SHARE: Final = 0.5
# Room for the line between the beginning and the end.
_NOTE_CHARS: Final = 160


class Lost(NamedTuple):
    """What came before a text, and is no longer retained, except its `beginning`."""

    bytes: int
    lines: int | None = None
    beginning: str = ""


def lost_before(text: str, size: int, beginning: str | None, total_lines: int | None) -> Lost:
    """Return what was lost of an output of `size` bytes, of which `text` is the end."""
    missing = size - len(text.encode(errors="replace"))
    if total_lines is None:
        return Lost(max(1, missing), None, beginning or "")
    # A line ends with two bytes in the output (CRLF), and with one in the text.
    lines = max(0, total_lines - text.count("\n"))
    return Lost(max(1, missing - total_lines), lines, beginning or "")


class Cropped(NamedTuple):
    """The beginning and end of an output, and how much between them was left out."""

    head: str
    tail: str
    lines: int | None = 0
    bytes: int = 0
    lost: int = 0
    """How many of the `bytes` can no longer be read."""

    @property
    def is_cropped(self) -> bool:
        return self.bytes > 0

    @property
    def head_lines(self) -> int:
        """The number of complete lines before the part that was left out and can be read."""
        return 0 if self.lost else self.head.count("\n")

    def with_note(self, how_to_read: str) -> str:
        """Return the output. If a part was left out, a line in its place says how to read it."""
        if not self.is_cropped:
            return self.head + self.tail
        size = _size(self.bytes)
        if self.lines is not None:
            size = f"{self.lines:,} line{'' if self.lines == 1 else 's'} ({size})"
        how = f": {how_to_read}"
        if self.lost == self.bytes:
            how = ", no longer retained"
        elif self.lost:
            how = f", {_size(self.lost)} of it no longer retained{how}"
        separator = "" if not self.head or self.head.endswith("\n") else "\n"
        note = f"… {size} left out{how} …"
        return f"{self.head}{separator}{note}\n{self.tail}"


def crop(text: str, limit: int, lost: Lost | None = None) -> Cropped:
    """Return `text`, or its beginning and end if it has more than `limit` characters.

    If something was `lost` before, return the beginning of that, and the end of `text`.
    """
    if lost is None and len(text) <= limit:
        return Cropped(text, "")
    room = max(limit // 2, limit - _NOTE_CHARS)
    head_size = round(room * HEAD_SHARE)
    tail_size = room - head_size
    head = (text if lost is None else lost.beginning)[:head_size]
    end = head.rfind("\n") + 1
    if end > head_size * _LINE_SEARCH_SHARE:
        head = head[:end]
    tail = text[-tail_size:] if tail_size else ""
    start = tail.find("\n") + 1
    if 0 < start < tail_size * _LINE_SEARCH_SHARE and not text[: -len(tail)].endswith("\n"):
        tail = tail[start:]
    middle = text[len(head) if lost is None else 0 : len(text) - len(tail)]
    lines = middle.count("\n") + bool(middle and not middle.endswith("\n"))
    size = len(middle.encode(errors="replace"))
    if lost is None:
        return Cropped(head, tail, lines, size)
    gone = max(1, lost.bytes - len(head.encode(errors="replace")))
    total = None if lost.lines is None else max(0, lost.lines + lines - head.count("\n"))
    return Cropped(head, tail, total, size + gone, gone)


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"
