"""Frames of a screen: paint the screen in an attached window whose size is not the terminal's.

A *frame* is the bytes that make the window show the current screen. Windows of the terminal's size
(passthrough windows) use `paint` instead.

- The first frame paints the whole window, on the alternate screen of the window's own terminal (in
  which the user has attached). Later frames paint only the rows that have changed.
- A smaller window shows the part with the cursor, and scrolls only when the cursor leaves it. A
  larger one fills the area outside of the screen with dots.
- The window's own terminal always gets the program's modes, because the input comes from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acpterm.terminal.vt.paint import (
    MODES_OFF,
    NO_KEY_FLAGS,
    NO_OTHER_KEYS,
    key_flags,
    other_keys_level,
    shape_sequence,
)
from acpterm.terminal.vt.rows import clipped, row_of, trimmed

if TYPE_CHECKING:
    from acpterm.terminal.vt.screen import EmulatorScreen

# Selects the alternate screen, with all state at its default. Wrapping is on: if it were off, a
# combining character in the last column might go to the column before. Wrapping has no other
# effect, since the cursor is placed before each write.
_BEGIN: Final = (
    f"\x1b\\\x1b]8;;\x1b\\\x1b[?1049h{NO_OTHER_KEYS}{NO_KEY_FLAGS}\x1b[?69l\x1b[r"
    f"\x1b[?6l\x1b[?7h\x1b[4l\x1b[20l\x1b(B\x0f\x1b[m{MODES_OFF}"
)
# Fills the area outside of the screen, as in tmux.
_DOT: Final = "·"


class Frames:
    """The frames of one window. Use a new object for a new size, and `paint.LEAVE` at the end."""

    def __init__(self, cols: int, rows: int) -> None:
        self._cols: Final = cols
        self._rows: Final = rows
        self._painted_rows: list[str] | None = None
        # For each row of the window, a key of the cells from which it was painted.
        self._keys: list[object] = [None] * rows
        self._left = 0
        self._top = 0
        self._cursor = ""
        self._modes: tuple[int, ...] = ()
        self._state = {"flags": key_flags(0), "level": other_keys_level(0)}

    def frame(self, screen: EmulatorScreen) -> bytes:
        """Return the bytes that make the window show `screen`; empty if it shows that already."""
        parts: list[str] = []
        if self._painted_rows is None:
            parts.append(_BEGIN)
            self._painted_rows = [""] * self._rows
        cursor = self._scroll(screen)
        changed = self._paint(screen, self._painted_rows)
        state = self._changed_state(screen)
        if parts or changed or state or cursor != self._cursor:
            if changed:
                # Hide the cursor, which would visibly jump from row to row.
                parts += ["\x1b[?25l", *changed]
            parts += [*state, cursor]
            self._cursor = cursor
        return "".join(parts).encode()

    def _scroll(self, screen: EmulatorScreen) -> str:
        """Choose the part to show; return the sequences that place the cursor."""
        x, y = screen.cursor
        self._left = _moved(self._left, x, self._cols, screen.cols)
        self._top = _moved(self._top, y, self._rows, screen.rows)
        visible = "h" if screen.cursor_visible else "l"
        return f"\x1b[{y - self._top + 1};{x - self._left + 1}H\x1b[?25{visible}"

    def _paint(self, screen: EmulatorScreen, painted: list[str]) -> list[str]:
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
            # If the row is full, do not erase: the erasure would include the last column.
            rest = "\x1b[K" if len(cells) < self._cols else ""
            row = f"{row_of(cells, links=True)}{rest}{self._outside(at, inside)}"
            if row != painted[at]:
                painted[at] = row
                changed.append(f"\x1b[{at + 1}H{row}")
        return changed

    def _outside(self, at: int, inside: int) -> str:
        """Return dots for the columns of a row of the window right of the screen's cells."""
        dots = _DOT * (self._cols - inside)
        return f"\x1b[{at + 1};{inside + 1}H\x1b[2m{dots}\x1b[m" if dots else ""

    def _changed_state(self, screen: EmulatorScreen) -> list[str]:
        """Return sequences for changed modes, keyboard, cursor shape and title."""
        parts = []
        before, self._modes = self._modes, screen.modes
        new = screen.modes[len(before) :]
        if screen.modes[: len(before)] != before:
            # Reset all modes and set them again: each mouse mode resets the other mouse modes, so
            # the order matters.
            new = screen.modes
            parts.append(MODES_OFF)
        parts += [f"\x1b[?{number}h" for number in new]
        now = {
            "keypad": "\x1b=" if screen.application_keypad else "\x1b>",
            "flags": key_flags(screen.keys[-1]),
            "level": other_keys_level(screen.other_keys),
            "shape": shape_sequence(screen),
            "title": f"\x1b]2;{screen.title}\x1b\\" if screen.title else "",
        }
        parts += [
            sequence for name, sequence in now.items() if sequence != self._state.get(name, "")
        ]
        self._state = now
        return parts


def _moved(start: int, cursor: int, window: int, size: int) -> int:
    """Return the first column (or row) to show: near `start`, with `cursor` in the window."""
    start = min(start, max(0, size - window))
    return min(max(start, cursor - window + 1), cursor)
