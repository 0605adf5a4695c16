"""What an attached window begins with where no emulator is installed: the last output.

A full-screen program paints a screen that cannot be had like that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from acpterm.terminal.vt.library import load
from acpterm.terminal.vt.paint import NEUTRAL

if TYPE_CHECKING:
    from acpterm.terminal.shared_ring import SharedRing

_TAIL_BYTES: Final = 16 * 1024
_ALTERNATE: Final = re.compile(rb"\x1b\[\?(?:47|104[79])([hl])")


def picture(ring: SharedRing, rows: int) -> bytes:
    """Return the last lines of the output, at most `rows`, behind what resets the window.

    Raises `EmulatorMissingError` while the program shows the alternate screen, which only an
    emulator knows.
    """
    data = ring.read(ring.start).data
    switches = _ALTERNATE.findall(data)
    if switches and switches[-1] == b"h":
        load()
    tail = data[-_TAIL_BYTES:]
    lines = tail.split(b"\n")
    # A cut line may begin within a sequence.
    whole = lines if len(tail) == len(data) and not ring.start else lines[1:]
    return NEUTRAL.encode() + b"\x1b[H\x1b[J" + b"\n".join(whole[-rows:])
