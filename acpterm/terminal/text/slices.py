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
    """Return the text of `data`, a slice of the output, and how many bytes of it were processed.

    The bytes that were not processed are an incomplete character, escape sequence or CRLF at the
    end of `data`: the next slice must begin with them. All bytes are processed if the slice is
    `final`, the last one of the output. If `data` has at least `SLICE_MIN_BYTES` bytes, some bytes
    are always processed. CR, BS and EL act only within the slice. Rows that the slice draws again
    are in its text once, as they are at its end; rows above the slice that it does not draw are
    not. If bytes before `data` are lost, the caller must first skip as many bytes as `resync`
    returns. `size` has the columns and rows of the terminal; if it is None, lines are repeated when
    they are drawn again.
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
    """Return how many leading bytes of `data` to skip when the bytes before `data` are lost.

    `data` may begin within an escape sequence. So all bytes up to and including the first LF are
    skipped, if there is an LF in the first 4 KiB. Otherwise, bytes that look like the rest of a
    control string (such as OSC), of a CSI sequence or of a character are skipped.
    """
    newline = data.find(b"\n", 0, _RESYNC_MAX_BYTES)
    if newline >= 0:
        return newline + 1
    if rest := _STRING_REST.match(data, 0, _RESYNC_MAX_BYTES):
        return rest.end()
    if rest := _CSI_REST.match(data, 0, _RESYNC_MAX_BYTES):
        return rest.end()
    return utf8.boundary(data[:3], 0)
