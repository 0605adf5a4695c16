"""Conversion of slices of the raw output to text, for readers that read the output in slices.

`text_of` returns the text of one slice. `resync` returns where to begin if the output before a
slice is lost.
"""

from __future__ import annotations

import re

from acpterm.terminal.text import utf8
from acpterm.terminal.text.controls import SEQUENCE_MAX, Controls
from acpterm.terminal.text.stream import TextView
from acpterm.terminal.text.utf8 import Utf8

#: `text_of` processes some bytes of every slice that has at least this many bytes.
SLICE_MIN_BYTES = 4 * SEQUENCE_MAX + 4
#: How many bytes `resync` searches for the end of a line, or of a string.
_RESYNC_MAX_BYTES = 4096

_CSI_REST = re.compile(rb"(?:\[[0-?]*|[0-9;:<=>?]+)[ -/]*[@-~]|[mK]")
_STRING_REST = re.compile(rb"[^\x1b\n]*(?:\a|\x1b\\)")


def text_of(data: bytes, *, final: bool, size: tuple[int, int] | None = None) -> tuple[str, int]:
    """Return the text of a slice of the output, and how many bytes of it were processed.

    The rest, an incomplete character, sequence or CRLF, begins the next slice; none is left of a
    `final` one. CR, BS and EL act only within the slice, and rows that it draws again are in its
    text once. If bytes before `data` are lost, first skip what `resync` returns. Without `size`,
    redrawn lines are repeated.
    """
    end = len(data) if final else _clean_end(data)
    if not end and len(data) >= SLICE_MIN_BYTES:
        end = len(data)
    # One byte becomes at most three bytes of text: U+FFFD. Each row above the slice takes two
    # bytes while it is unknown.
    view = TextView(3 * end + 2 * (size[1] if size else 0), size=size, truncated=True)
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
    """Return how many bytes of `data`, which may begin within a sequence, to skip.

    Up to the first LF in 4 KiB, else what looks like the rest of a string, CSI or character.
    """
    newline = data.find(b"\n", 0, _RESYNC_MAX_BYTES)
    if newline >= 0:
        return newline + 1
    if rest := _STRING_REST.match(data, 0, _RESYNC_MAX_BYTES):
        return rest.end()
    if rest := _CSI_REST.match(data, 0, _RESYNC_MAX_BYTES):
        return rest.end()
    return utf8.boundary(data[:3], 0)
