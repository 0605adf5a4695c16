"""Frames of a screen, for a viewer whose window has another size.

Rules:

- The first frame paints everything, in the viewer's alternate screen; the next ones only what has
  changed, row by row.
- A window that is smaller than the screen shows the part with the cursor, and moves only when the
  cursor leaves it. What is outside of the screen has dots.
- The viewer's terminal always has the modes that the program set, since it is the keyboard of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acpterm.terminal.vt import keys
from acpterm.terminal.vt.paint import MODES_OFF, shape_sequence
from acpterm.terminal.vt.rows import clipped, row_of, trimmed

if TYPE_CHECKING:
    from acpterm.terminal.vt.screen import Screen

# Nothing in force but the alternate screen. Lines wrap: without that, a mark in the last column may
# go to the one before it. But the cursor is put somewhere before anything else is written.
_BEGIN: Final = (
    f"\x1b\\\x1b]8;;\x1b\\\x1b[?1049h{keys.NO_LEVEL}{keys.NO_FLAGS}\x1b[?69l\x1b[r"
    f"\x1b[?6l\x1b[?7h\x1b[4l\x1b[20l\x1b(B\x0f\x1b[m\x1b[2J{MODES_OFF}"
)
# As tmux marks what is outside.
_DOT: Final = "·"


class Frames:
    """What one viewer, with a window of `cols` columns and `rows` rows, has been shown.

    For a window of another size, make a new one. `paint.LEAVE` undoes it.
    """

    def __init__(self, cols: int, rows: int) -> None:
        self._cols: Final = cols
        self._rows: Final = rows
        self._shown: list[str] | None = None
        # What the rows that are shown were made of.
        self._keys: list[object] = [None] * rows
        self._left = 0
        self._top = 0
        self._cursor = ""
        self._modes: tuple[int, ...] = ()
        self._state = {"flags": keys.flags(0), "level": keys.level(0)}

    def frame(self, screen: Screen) -> bytes:
        """Return what brings the window up to date; nothing if it is."""
        parts: list[str] = []
        if self._shown is None:
            parts.append(_BEGIN)
            self._shown = [""] * self._rows
        cursor = self._look(screen)
        changed = self._paint(screen, self._shown)
        state = self._tell(screen)
        if parts or changed or state or cursor != self._cursor:
            if changed:
                # Hidden while it would jump about.
                parts += ["\x1b[?25l", *changed]
            parts += [*state, cursor]
            self._cursor = cursor
        return "".join(parts).encode()

    def _look(self, screen: Screen) -> str:
        """Move the window to where the cursor is; return what puts the viewer's cursor there."""
        x, y = screen.cursor
        self._left = _moved(self._left, x, self._cols, screen.cols)
        self._top = _moved(self._top, y, self._rows, screen.rows)
        visible = "h" if screen.cursor_visible else "l"
        return f"\x1b[{y - self._top + 1};{x - self._left + 1}H\x1b[?25{visible}"

    def _paint(self, screen: Screen, shown: list[str]) -> list[str]:
        changed: list[str] = []
        for at in range(self._rows):
            y = self._top + at
            inside = min(screen.cols, self._cols) if y < screen.rows else 0
            key = (self._left, inside, screen.row_key(y)) if inside else None
            if key is not None and key == self._keys[at]:
                continue
            self._keys[at] = key
            row_cells = screen.cells(y) if y < screen.rows else []
            cells = trimmed(clipped(row_cells, self._left, self._cols))
            # Behind the last column there is nothing to erase.
            rest = "\x1b[K" if len(cells) < self._cols else ""
            row = f"{row_of(cells, links=True)}{rest}{self._outside(at, inside)}"
            if row != shown[at]:
                shown[at] = row
                changed.append(f"\x1b[{at + 1}H{row}")
        return changed

    def _outside(self, at: int, inside: int) -> str:
        """Return what fills a row behind the columns that are inside of the screen."""
        dots = _DOT * (self._cols - inside)
        return f"\x1b[{at + 1};{inside + 1}H\x1b[2m{dots}\x1b[m" if dots else ""

    def _tell(self, screen: Screen) -> list[str]:
        """Return what changed of the modes and so on."""
        parts = []
        before, self._modes = self._modes, screen.modes
        new = screen.modes[len(before) :]
        if screen.modes[: len(before)] != before:
            # All off and on again: of the mouse's, each turns off the others, and the last counts.
            new = screen.modes
            parts.append(MODES_OFF)
        parts += [f"\x1b[?{number}h" for number in new]
        now = {
            "keypad": "\x1b=" if screen.application_keypad else "\x1b>",
            "flags": keys.flags(screen.keys[-1]),
            "level": keys.level(screen.other_keys),
            "shape": shape_sequence(screen),
            "title": f"\x1b]2;{screen.title}\x1b\\" if screen.title else "",
        }
        parts += [said for what, said in now.items() if said != self._state.get(what, "")]
        self._state = now
        return parts


def _moved(start: int, cursor: int, window: int, size: int) -> int:
    """Return where a window begins, moved no further than needed for the cursor to be in it."""
    start = min(start, max(0, size - window))
    return min(max(start, cursor - window + 1), cursor)
