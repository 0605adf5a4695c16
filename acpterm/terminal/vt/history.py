"""The rows that have scrolled off a terminal's main screen, drawn again from the retained output.

The emulator of a terminal has no scrollback. So the output is fed in steps to one that has.
"""

from collections.abc import Iterator
from typing import Final

from acpterm.terminal.vt.emulator import Emulator
from acpterm.terminal.vt.rows import row_of

_STEP_BYTES: Final = 16 * 1024
# More than a step needs, unless it repeats characters (REP).
_SCROLLBACK_BYTES: Final = 256 * 1024 * 1024
# Programs such as `clear` erase the scrollback. What is retained is shown nevertheless.
_ERASURE: Final = b"\x1b[3J"


def rows_above(data: bytes, cols: int, rows: int) -> Iterator[str]:
    """Yield the rows above a screen as text with SGR, from raw output of the main screen."""
    emulator = Emulator(cols, rows)
    emulator.keep_scrollback(_SCROLLBACK_BYTES)
    data = data.replace(_ERASURE, b"")
    for start in range(0, len(data), _STEP_BYTES):
        emulator.feed(data[start : start + _STEP_BYTES])
        yield from map(row_of, emulator.pop_scrollback())
