"""Reads the retained output of a terminal, and draws the rows that have scrolled off the screen.

The rows that have scrolled off a terminal's main screen, drawn again from the retained output.

The emulator of a terminal has no scrollback. So the output is fed in steps to one that has.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

from acpterm.acp.user_api import ScreenResponse
from acpterm.commands.blocking_client import BlockingClient
from acpterm.commands.output.read import read_output
from acpterm.terminal.text.slices import resync
from acpterm.terminal.vt.emulator import Emulator
from acpterm.terminal.vt.paint import main_output
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


class RowsAbove(NamedTuple):
    """The rows above a screen, as text with colours (SGR)."""

    rows: Iterator[str]
    lost: int
    """Bytes of output that are not retained, before the rows."""


def read_history(client: BlockingClient, terminal: str, screen: ScreenResponse) -> RowsAbove:
    """Read the retained output before `screen`; its rows are drawn when they are iterated over."""
    pieces: list[bytes] = []
    lost = 0
    with closing(read_output(client, terminal, stay=False)) as parts:
        for part in parts:
            start = part.position - len(part.data)
            if part.lost or not pieces:
                pieces, lost = [], start
            pieces.append(part.data[: max(0, screen.position - start)])
            if part.position >= screen.position:
                break
    data = b"".join(pieces)
    skipped = resync(data) if lost else 0
    return RowsAbove(
        rows_above(main_output(data[skipped:]), screen.cols, screen.lines), lost + skipped
    )
