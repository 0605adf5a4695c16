"""Whether a program paints the whole screen, told from what it prints as that comes in.

Signs are the alternate screen, absolute cursor addresses and scrolling regions; not going home, as
clearing the screen does. Looking has to cost next to nothing: where much comes at once, only its
end is looked at closely.
"""

from __future__ import annotations

import re
from typing import Final

_ALTERNATE: Final = re.compile(rb"\x1b\[\?(?:47|104[79])h")
_SIGN: Final = re.compile(
    rb"\x1b\[(?:[0-9]{1,4}(?:;[0-9]{1,4}[Hfr]|d)|\?(?:47|104[79])h)",
)
_SIGN_MAX: Final = 12
_CLOSE: Final = 4 * 1024


class FullScreen:
    """Looks for signs in one stream."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def seen(self, data: bytearray, size: int) -> bool:
        """Whether there is a sign in what comes next, the first `size` bytes of `data`."""
        tail, last = self._tail, data.rfind(b"\x1b", 0, size)
        if last < 0 and not tail:
            return False
        start = max(last, size - _SIGN_MAX, 0)
        self._tail = bytes(data[last:size]) if 0 <= last == start else b""
        if tail and _SIGN.search(tail + data[: min(size, _SIGN_MAX)]):
            return True
        if last < 0:
            return False
        if _SIGN.search(data, max(0, size - _CLOSE), size):
            return True
        # A question mark is looked for as fast as memory is read.
        rest = max(0, size - _CLOSE)
        return rest > 0 and data.find(b"?", 0, rest) >= 0 and bool(_ALTERNATE.search(data, 0, size))
