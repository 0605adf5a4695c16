"""Frames of a screen, for a viewer whose window has another size, or who cannot keep up.

Rules:

- The first frame paints everything, in the viewer's alternate screen; the next ones say only what
  has changed, row by row.
- A window that is smaller than the screen shows the part with the cursor, and moves only when the
  cursor leaves it. What is outside of the screen is blank.
- The viewer's terminal always has the modes that the program set, since it is the keyboard of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acpterm.terminal.key_reports import NO_FLAGS, NO_LEVEL, flagged, levelled
from acpterm.terminal.picture import MODES_OFF, clipped, row_of, trimmed
from acpterm.terminal.told import DECTCEM

if TYPE_CHECKING:
    from acpterm.terminal.grid import Grid
    from acpterm.terminal.screen import Screen
    from acpterm.terminal.told import Told

# Nothing in force but the alternate screen; lines do not wrap, so the last column is one as others.
_BEGIN: Final = (
    f"\x1b\\\x1b]8;;\x1b\\\x1b[?1049h{NO_LEVEL}{NO_FLAGS}\x1b[r"
    f"\x1b[?6l\x1b[?7l\x1b[4l\x1b[20l\x1b(B\x0f\x1b[m\x1b[2J{MODES_OFF}"
)


class Frames:
    """What one viewer, with a window of `cols` columns and `rows` rows, has been shown.

    For a window of another size, make a new one. `LEAVE` undoes it.
    """

    def __init__(self, cols: int, rows: int) -> None:
        self._cols: Final = cols
        self._rows: Final = rows
        self._shown: list[str] | None = None
        self._left = 0
        self._top = 0
        self._cursor = ""
        self._modes: tuple[int, ...] = ()
        self._told = {"flags": flagged(0), "level": levelled(0)}

    def frame(self, screen: Screen) -> bytes:
        """Give what brings the window up to date; nothing if it is."""
        grid = screen.grid
        parts: list[str] = []
        if self._shown is None:
            parts.append(_BEGIN)
            self._shown = [""] * self._rows
        cursor = self._look(grid)
        changed = self._paint(grid, self._shown)
        told = self._tell(grid.told)
        if parts or changed or told or cursor != self._cursor:
            if changed:
                # Hidden while it would jump about.
                parts += ["\x1b[?25l", *changed]
            parts += [*told, cursor]
            self._cursor = cursor
        return "".join(parts).encode()

    def _look(self, grid: Grid) -> str:
        """Move the window to where the cursor is; give what puts the viewer's cursor there."""
        x, y = min(grid.cursor.x, grid.columns - 1), grid.cursor.y
        self._left = _moved(self._left, x, self._cols, grid.columns)
        self._top = _moved(self._top, y, self._rows, grid.lines)
        visible = "h" if DECTCEM in grid.mode else "l"
        return f"\x1b[{y - self._top + 1};{x - self._left + 1}H\x1b[?25{visible}"

    def _paint(self, grid: Grid, shown: list[str]) -> list[str]:
        changed: list[str] = []
        for at in range(self._rows):
            y = self._top + at
            row_cells = grid.cells_of(y) if y < grid.lines else []
            cells = trimmed(clipped(row_cells, self._left, self._cols))
            row = row_of(cells, links=True)
            if row != shown[at]:
                shown[at] = row
                # Behind the last column there is nothing to erase.
                rest = "\x1b[K" if len(cells) < self._cols else ""
                changed.append(f"\x1b[{at + 1}H{row}{rest}")
        return changed

    def _tell(self, told: Told) -> list[str]:
        """Give what changed of the modes and so on."""
        parts = []
        before, self._modes = self._modes, told.modes
        new = told.modes[len(before) :]
        if told.modes[: len(before)] != before:
            # All off and on again: of the mouse's, each turns off the others, and the last counts.
            new = told.modes
            parts.append(MODES_OFF)
        parts += [f"\x1b[?{number}h" for number in new]
        now = {
            "keypad": "\x1b=" if told.keypad else "\x1b>",
            "flags": flagged(told.keys.flags),
            "level": levelled(told.keys.level),
            "shape": f"\x1b[{told.shape} q",
            "title": "" if told.title is None else f"\x1b]2;{told.title}\x1b\\",
        }
        parts += [said for what, said in now.items() if said != self._told.get(what, "")]
        self._told = now
        return parts


def _moved(start: int, cursor: int, window: int, size: int) -> int:
    """Give where a window begins, moved no further than needed for the cursor to be in it."""
    start = min(start, max(0, size - window))
    return min(max(start, cursor - window + 1), cursor)
