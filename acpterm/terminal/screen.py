"""What a window on a terminal shows now.

Rendered by pyte: nothing of it is imported before a Screen is made.

Rules:

- Bytes are decoded as the text view decodes them, and no input raises: what the emulator
  does not know is left out (see `emulator`).
- Rows have no trailing blanks, and the text no trailing empty rows.
- Feeding is slow, in the order of a microsecond a character. It does not give way to other
  tasks: feed some KiB at a time and let others run in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpterm.terminal.told import DECTCEM
from acpterm.terminal.utf8 import Utf8

if TYPE_CHECKING:
    from acpterm.terminal.emulator import Emulator
    from acpterm.terminal.grid import Grid


class Screen:
    """A screen of `cols` columns and `rows` rows, both 1 or more.

    Raises ValueError for another size.
    """

    __slots__ = ("_emulator", "_utf8")

    def __init__(self, cols: int, rows: int) -> None:
        _check(cols, rows)
        self._utf8 = Utf8()
        self._emulator = _load()(cols, rows)

    @property
    def cols(self) -> int:
        """The width in columns."""
        return self._emulator.grid.columns

    @property
    def rows(self) -> int:
        """The height in rows."""
        return self._emulator.grid.lines

    @property
    def cursor(self) -> tuple[int, int]:
        """The column and the row of the cursor, from 0; the column is less than `cols`."""
        cursor = self._emulator.grid.cursor
        return min(cursor.x, self.cols - 1), cursor.y

    @property
    def cursor_visible(self) -> bool:
        """Whether the program shows the cursor (DECTCEM)."""
        return DECTCEM in self._emulator.grid.mode

    @property
    def application_cursor(self) -> bool:
        """Whether the cursor keys are to be typed as the program set them (DECCKM)."""
        return 1 in self._emulator.grid.told.modes

    @property
    def title(self) -> str:
        """The window's title; empty if the program set none."""
        return self._emulator.grid.told.title or ""

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Show what the terminal printed next."""
        self._emulator.feed(self._utf8.feed(bytes(data)).decode())

    @property
    def grid(self) -> Grid:
        """The cells and modes, for who paints them."""
        return self._emulator.grid

    @property
    def held(self) -> bytes:
        """What came of a sequence or a character that is not whole yet."""
        return self._emulator.held.encode() + self._utf8._held  # noqa: SLF001  a part of this

    def skip(self, data: bytes) -> None:
        """Show what the terminal printed next, when it is too much: only what stays in force.

        Such are modes, how keys are told, the alternate screen, the scrolling region and the title.
        Some nanoseconds a byte.
        """
        self._utf8.finish()
        text = data.decode(errors="replace") if b"\x1b" in data else ""
        self._emulator.skip(text)

    def resize(self, cols: int, rows: int) -> None:
        """Change the size: rows leave at the bottom while the cursor stays, then at the top.

        Columns leave and come at the right; nothing is wrapped anew.
        """
        _check(cols, rows)
        self._emulator.grid.set_size(cols, rows)

    def text(self) -> str:
        """Return the rows, joined by newlines."""
        return "\n".join(row.rstrip(" ") for row in self._emulator.grid.rows_shown()).rstrip("\n")


def _check(cols: int, rows: int) -> None:
    if cols < 1 or rows < 1:
        raise ValueError(f"a screen has at least 1 column and 1 row, not {cols} by {rows}")


def _load() -> type[Emulator]:
    from acpterm.terminal.emulator import Emulator  # noqa: PLC0415  it imports pyte

    return Emulator
