"""Conversion of a terminal's output to what a pipe would have received.

A terminal writes CR LF for each LF of its program; that CR is removed, and so are escape sequences.
All other bytes are unchanged.
"""

import re
from typing import Final

# Longer sequences are not recognised. The text that agents read has the same bound.
_SEQUENCE_MAX: Final = 8192
_SEQUENCE: Final = re.compile(
    rb"\x1b(?:"
    rb"\[[0-?]*[ -/]*[@-~]"
    rb"|\][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=[\x1b\n]))"
    rb"|P[^\x1b]*(?:\x1b\\|(?=\x1b))"
    rb"|[X^_][^\x1b\n]*(?:\x1b\\|(?=[\x1b\n]))"
    rb"|[ -/]*[0-OQ-WYZ\\`-~]"
    rb"|)"
)
# What the next part may complete: a sequence, or a CR that an LF follows.
_UNFINISHED: Final = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*\x1b?|P[^\x1b]*\x1b?|[X^_][^\x1b\n]*\x1b?|[ -/]*)"
    rb"|\r)\Z"
)


class PipeOutput:
    """Converts a terminal's output to a pipe's. The output may be split anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the converted bytes, without an incomplete sequence at the end of `data`."""
        data, self._rest = self._rest + data, b""
        begin = data.rfind(b"\x1b", max(0, len(data) - _SEQUENCE_MAX))
        # An ESC at the end may begin the terminator of a string, so look for the string before it.
        if begin > 0 and data[begin:] == b"\x1b":
            begin = max(0, data.rfind(b"\x1b", max(0, begin - _SEQUENCE_MAX), begin))
        at = begin if begin >= 0 else len(data) - data.endswith(b"\r")
        if found := _UNFINISHED.search(data, at):
            data, self._rest = data[: found.start()], data[found.start() :]
        return _SEQUENCE.sub(b"", data).replace(b"\r\n", b"\n")

    def finish(self) -> bytes:
        """Return what is left at the end: a CR, but not an incomplete sequence."""
        rest, self._rest = self._rest, b""
        return rest if rest == b"\r" else b""
