"""The text of slices of a stream, for readers that read the raw output bit by bit.

`text_of` returns the text of one slice. `resync` returns where to begin when output is lost.
"""

from __future__ import annotations

import re

from acpterm.terminal.text import utf8
from acpterm.terminal.text.controls import SEQUENCE_MAX, Controls
from acpterm.terminal.text.stream import TextView
from acpterm.terminal.text.utf8 import Utf8

#: `text_of` returns some text for every slice of at least this many bytes.
SLICE_MIN_BYTES = 4 * SEQUENCE_MAX + 4
#: How far `resync` searches for the end of a line, or of a string.
_RESYNC_MAX_BYTES = 4096

_CSI_REST = re.compile(rb"(?:\[[0-?]*|[0-9;:<=>?]+)[ -/]*[@-~]|[mK]")
_STRING_REST = re.compile(rb"[^\x1b\n]*(?:\a|\x1b\\)")


def text_of(data: bytes, *, final: bool) -> tuple[str, int]:
    """Return the text of a slice of the stream, and how many bytes of the slice it covers.

    `data` begins where the count of the slice before ended (or see `resync`). CR, BS and EL act
    within the slice. Unless the slice is `final`, an incomplete character, escape sequence or CRLF
    at its end is not counted, so that the next slice can begin with it. Of a slice of
    `SLICE_MIN_BYTES` or more some bytes are always counted.
    """
    end = len(data) if final else _clean_end(data)
    if not end and len(data) >= SLICE_MIN_BYTES:
        end = len(data)
    # One byte becomes at most three bytes of text: U+FFFD.
    view = TextView(3 * end)
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
    """Return how many leading bytes to skip when the bytes before `data` are lost.

    Skip up to the first LF within 4 KiB, since only a line is sure to begin in a known state.
    Without one, skip what looks like the rest of a string, of a CSI sequence or of a character;
    text that merely looks like that is skipped too, since text is missing there anyway.
    """
    newline = data.find(b"\n", 0, _RESYNC_MAX_BYTES)
    if newline >= 0:
        return newline + 1
    if rest := _STRING_REST.match(data, 0, _RESYNC_MAX_BYTES):
        return rest.end()
    if rest := _CSI_REST.match(data, 0, _RESYNC_MAX_BYTES):
        return rest.end()
    return utf8.boundary(data[:3], 0)
