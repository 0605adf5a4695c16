"""The rows that have scrolled off a terminal's main screen, drawn again from the retained output.

The emulator of a terminal has no scrollback. So the output is fed to another emulator, which is as
high as the screen and the requested rows together. In it, a program that addresses the cursor by
row draws near the top: the rows are exact for output that scrolls, such as that of a shell.
"""

from typing import Final

import trio

from acpterm.terminal.vt.emulator import CELLS_MAX, Emulator
from acpterm.terminal.vt.rows import row_of

ROWS_MAX: Final = 10_000
_CHUNK_BYTES: Final = 16 * 1024
_ROWS_AT_ONCE: Final = 20


async def rows_before(data: bytes, cols: int, rows: int, count: int) -> list[str]:
    """Return at most `count` rows above a screen of this size, as text with colours (SGR).

    `data` is the raw output that has been written on the main screen. At most `ROWS_MAX` rows are
    returned, and fewer for a wide terminal. Raises the errors of `Emulator.screen`.
    """
    height = min(rows + min(count, ROWS_MAX), CELLS_MAX // cols)
    emulator = Emulator(cols, height)
    for start in range(0, len(data), _CHUNK_BYTES):
        emulator.feed(data[start : start + _CHUNK_BYTES])
        await trio.lowlevel.checkpoint()
    screen = emulator.screen()
    used = screen.cursor[1] + 1
    found: list[str] = []
    for y in range(max(0, used - rows)):
        if y % _ROWS_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        found.append(row_of(screen.cells(y)))
    return found
