"""Cropping of long output to a limit: its beginning and its end, with a note about the rest.

The beginning takes 20 % of the limit, the end 80 %. The output is cut at the ends of lines, unless
that would lose too much because of a long line.
"""

from typing import Final, NamedTuple

HEAD_SHARE: Final = 0.2
_LINE_SEARCH_SHARE: Final = 0.5
"""The share of the beginning or end that may be dropped to cut at the end of a line."""


class Cropped(NamedTuple):
    """The beginning and end of an output, and how many lines and bytes between them were left out.

    If nothing was left out, `head` is the whole output.
    """

    head: str
    tail: str
    lines: int = 0
    bytes: int = 0

    @property
    def is_cropped(self) -> bool:
        """Whether output was left out."""
        return self.bytes > 0

    @property
    def head_lines(self) -> int:
        """The number of complete lines before the part that was left out."""
        return self.head.count("\n")

    def with_note(self, how_to_read: str) -> str:
        """Return the output. If a part was left out, a line in its place says how to read it."""
        if not self.is_cropped:
            return self.head + self.tail
        lines = f"{self.lines:,} line{'' if self.lines == 1 else 's'}"
        separator = "" if not self.head or self.head.endswith("\n") else "\n"
        note = f"… {lines} ({_size(self.bytes)}) left out: {how_to_read} …"
        return f"{self.head}{separator}{note}\n{self.tail}"


def crop(text: str, limit: int) -> Cropped:
    """Return `text`, or its beginning and end if it has more than `limit` characters."""
    if len(text) <= limit:
        return Cropped(text, "")
    head_size = round(limit * HEAD_SHARE)
    tail_size = limit - head_size
    head = text[:head_size]
    end = head.rfind("\n") + 1
    if end > head_size * _LINE_SEARCH_SHARE:
        head = head[:end]
    tail = text[-tail_size:] if tail_size else ""
    start = tail.find("\n") + 1
    if 0 < start < tail_size * _LINE_SEARCH_SHARE and not text[: -len(tail)].endswith("\n"):
        tail = tail[start:]
    middle = text[len(head) : len(text) - len(tail)]
    lines = middle.count("\n") + (0 if middle.endswith("\n") else 1)
    return Cropped(head, tail, lines, len(middle.encode(errors="replace")))


def _size(count: int) -> str:
    """Return a number of bytes as text: `612 kB`."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"
