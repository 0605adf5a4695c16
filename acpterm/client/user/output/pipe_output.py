"""A terminal's output as a pipe would have got it: LF ends lines, and there is no escape sequence.

A terminal writes CR and LF for each LF of its program: that CR is taken out again. All other bytes
stay as they are.
"""

import re
from typing import Final

# A sequence that has no end by then is none: the same bound as for the text that agents read.
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
# What may go on in the next part: a sequence, and the CR before an LF.
_UNFINISHED: Final = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*\x1b?|P[^\x1b]*\x1b?|[X^_][^\x1b\n]*\x1b?|[ -/]*)"
    rb"|\r)\Z"
)


class PipeOutput:
    """Makes a pipe's bytes of a terminal's, wherever they are cut."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return what `data` adds."""
        data, self._rest = self._rest + data, b""
        begin = data.rfind(b"\x1b", max(0, len(data) - _SEQUENCE_MAX))
        # The end of a string is a sequence by itself: the string may begin before it.
        if begin > 0 and data[begin:] == b"\x1b":
            begin = max(0, data.rfind(b"\x1b", max(0, begin - _SEQUENCE_MAX), begin))
        at = begin if begin >= 0 else len(data) - data.endswith(b"\r")
        if found := _UNFINISHED.search(data, at):
            data, self._rest = data[: found.start()], data[found.start() :]
        return _SEQUENCE.sub(b"", data).replace(b"\r\n", b"\n")

    def finish(self) -> bytes:
        """Return what is left at the end: a CR, but no half of a sequence."""
        rest, self._rest = self._rest, b""
        return rest if rest == b"\r" else b""
