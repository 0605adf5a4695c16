"""A snapshot of a terminal's screen: cells, text, cursor, modes and title.

`Emulator.screen` takes the snapshot: libghostty-vt returns its state as bytes, and the module
`dump` parses these. A snapshot never changes, even if the emulator is fed afterwards. Rows have no
trailing blanks, and the text has no trailing empty rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acpterm.terminal.vt.dump import Dump, rows_of
from acpterm.terminal.vt.style import BLANK, Cell

if TYPE_CHECKING:
    from acpterm.terminal.vt.page import Page

TITLE_MAX: Final = 256  # characters; the rest is cut off
# The modes that a viewer's terminal must have too: application cursor keys, reverse video, whether
# DECCOLM is obeyed, focus reports, bracketed paste. Mouse modes are set after these. The visibility
# of the cursor is set separately.
_MODES: Final[tuple[int, ...]] = (1, 5, 40, 1004, 2004)
MOUSE_MODES: Final = (9, 1000, 1002, 1003, 1005, 1006, 1015, 1016)
# Passed on to the terminal in which a user attaches, and reset when the user detaches.
MODES: Final = (1, 5, 12, 40, *MOUSE_MODES, 1004, 2004)
DECOM: Final = 6
DECAWM: Final = 7
DECTCEM: Final = 25
DECLRMM: Final = 69
_DECCKM: Final = 1
_DECNKM: Final = 66
_BRACKETED_PASTE: Final = 2004
_BLINKING: Final = 12
_ALTERNATE: Final = 1
# The DECSCUSR number of each of libghostty's cursor shapes, blinking: bar, block, underline, hollow
# block.
_SHAPES: Final = (5, 1, 3, 1)


class EmulatorScreen:
    """A screen of `cols` by `rows`: if smaller than the emulator's, the part with the cursor."""

    def __init__(self, dump: Dump, cols: int, rows: int) -> None:
        self.cols: Final = cols
        self.rows: Final = rows
        self._dump: Final = dump
        active = self._active = dump.screens[dump.active]
        #: The main screen while the alternate screen is shown.
        self.main: Final = dump.screens[0] if dump.active == _ALTERNATE else None
        self.is_alternate: Final = self.main is not None
        #: Whether this screen is only a part of the emulator's.
        self.is_clipped: Final = (cols, rows) != (dump.cols, dump.rows)
        self._top: Final = max(0, active.y - rows + 1) if rows < dump.rows else 0
        #: The bytes of an incomplete sequence or character at the end of the output.
        self.held: Final = dump.held
        self.cursor: Final = min(active.x, cols - 1), min(active.y - self._top, rows - 1)
        self.cursor_visible: Final = DECTCEM in dump.modes
        #: Whether the row is full, so that the next character goes to the next row.
        self.wraps: Final = active.wraps
        #: The style with which the next character is written.
        self.pen: Final = active.pen
        self.charsets: Final = active.charsets
        #: The cursor that DECSC saved on the current screen.
        self.saved: Final = active.saved
        #: The last character printed, which REP repeats; empty if there is none.
        self.last: Final = dump.last
        #: The first and last row, and column, of the scrolling region of the emulator's screen.
        self.margins: Final = dump.top, dump.bottom
        self.side_margins: Final = dump.left, dump.right
        self.tabs: Final = dump.tabs
        #: Kitty's stack of keyboard flags; the last entry is in effect.
        self.keys: Final = active.keys
        #: The level of xterm's modifyOtherKeys: 0 or 2. The emulator knows no other level.
        self.other_keys: Final = 2 if dump.has_other_keys else 0
        self.application_cursor: Final = _DECCKM in dump.modes
        self.application_keypad: Final = _DECNKM in dump.modes
        self.bracketed_paste: Final = _BRACKETED_PASTE in dump.modes
        self.is_default_cursor_blinking: Final = (
            bool(dump.is_default_cursor) and _BLINKING in dump.modes
        )

    def cells(self, y: int, *, main: bool = False) -> list[Cell]:
        """Return the cells of row `y`, without blanks in default style at the end.

        With `main`, the row of the main screen, even while the alternate screen is shown.
        """
        page, at = self._row(y, main=main)
        if page is None:
            return []
        cells = page.cells(at)
        if len(cells) > self.cols:
            if not cells[self.cols].data:
                cells[self.cols - 1] = Cell(" ", cells[self.cols - 1].style)
            del cells[self.cols :]
        end = len(cells)
        while end and cells[end - 1] == BLANK:
            end -= 1
        del cells[end:]
        return cells

    def row_key(self, y: int) -> tuple[bytes, bytes]:
        """Return a key that changes whenever the row's cells change, for a fast comparison."""
        page, at = self._row(y, main=False)
        return (b"", b"") if page is None else (page.tables, page.words(at))

    def _row(self, y: int, *, main: bool) -> tuple[Page | None, int]:
        state = self.main if main and self.main is not None else self._active
        rows = rows_of(state, self._dump.rows)
        y += self._top
        return rows[y] if y < len(rows) else (None, 0)

    def text(self) -> str:
        rows = ("".join([cell.data for cell in self.cells(y)]) for y in range(self.rows))
        return "\n".join(row.rstrip(" ") for row in rows).rstrip("\n")

    @property
    def cursor_shape(self) -> int:
        """The cursor's shape as a DECSCUSR number; 0 if the program has not chosen a shape."""
        if self._dump.is_default_cursor:
            return 0
        shape = _SHAPES[self._active.shape] if self._active.shape < len(_SHAPES) else 1
        return shape if _BLINKING in self._dump.modes else shape + 1

    def is_set(self, mode: int) -> bool:
        """Return whether a mode is set; ANSI modes are negative."""
        return mode in self._dump.modes

    @property
    def modes(self) -> tuple[int, ...]:
        """The private modes that a viewer's terminal must have too."""
        modes = [mode for mode in _MODES if mode in self._dump.modes]
        modes += [mode for mode in (self._dump.mouse_event, self._dump.mouse_format) if mode]
        return tuple(modes)

    @property
    def title(self) -> str:
        return "".join(char for char in self._dump.title if char.isprintable())[:TITLE_MAX]
