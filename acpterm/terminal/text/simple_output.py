r"""Recognition of simple output: printing ASCII, TAB, LF, CR and whole SGR sequences.

Most output of programs that print much is simple, and simple output is cheap to recognise. It
changes only cells, the cursor and the attributes of later cells. So the part of it that later
output pushes off the screen, or out of the retained text, need not be processed: see
`vt.emulator` for the screen, and `stream` for the text.
"""

import re
from typing import Final

LINE_END: Final = b"\r\n"
SGR: Final = re.compile(rb"\x1b\[[0-9;:]{0,64}m")

_SIMPLE: Final = bytes(range(0x20, 0x7F)) + b"\t\r\n\x1b"
_NO_SGR: Final = re.compile(rb"\x1b(?!\[[0-9;:]{0,64}m)")
_CUT_SGR: Final = re.compile(rb"\x1b(?:\[[0-9;:]{0,64})?\Z")
# All bytes that an SGR sequence may consist of, and CR.
_MAY_BE_SGR: Final = b"\x1b[0123456789;:m\r"


def find_end(data: bytes) -> int:
    """Return the length of the simple output in `data`; 0 if `data` has any other output.

    A CR or an incomplete SGR at the end is not counted: only the next output shows whether it is
    simple. `data` must not begin within an escape sequence.
    """
    end = len(data)
    if cut := _CUT_SGR.search(data, max(0, data.rfind(b"\x1b"))):
        end = cut.start()
    end -= data.endswith(b"\r", 0, end)
    if data[:end].translate(None, _SIMPLE):
        return 0
    if b"\x1b" in data and (odd := _NO_SGR.search(data)) and odd.start() < end:
        return 0
    return end


def text_bytes_min(data: bytes) -> int | None:
    """Return the minimum number of bytes of text of the complete lines; None if a CR overwrites.

    With SGR sequences too low a number, because characters that may belong to one are not counted.
    """
    returns = data.count(b"\r")
    if data.count(LINE_END) != returns:
        return None
    end = data.rfind(b"\n") + 1
    if b"\x1b" in data:
        return len(data[:end].translate(None, _MAY_BE_SGR))
    return end - returns


def text_of(lines: bytes) -> bytes:
    """Return the text of complete lines in which each CR is followed by LF."""
    if b"\x1b" in lines:
        lines = b"".join(SGR.split(lines))
    return lines.replace(LINE_END, b"\n")
