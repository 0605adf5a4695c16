"""What a window on a terminal shows now.

Rendered by pyte, an optional dependency: nothing of it is imported before a Screen is made.

Rules:

- Bytes are decoded as the text view decodes them, and no input raises: what the emulator
  does not know is left out (see `emulator`).
- Rows have no trailing blanks, and the text no trailing empty rows.
- Feeding is slow, in the order of a microsecond a character. It does not give way to other
  tasks: feed some KiB at a time and let others run in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpterm.terminal.utf8 import Utf8

if TYPE_CHECKING:
    from acpterm.terminal.emulator import Emulator


class ScreenUnavailable(Exception):  # noqa: N818 - a state of the installation
    """The emulator is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "the screen of a terminal needs the package pyte; "
            "install it with: pip install 'acpterm[screen]'"
        )


class Screen:
    """A screen of `cols` columns and `rows` rows, both 1 or more.

    Raises ScreenUnavailable if pyte is not installed, and ValueError for another size.
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

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Show what the terminal printed next."""
        self._emulator.feed(self._utf8.feed(bytes(data)).decode())

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
    try:
        from acpterm.terminal.emulator import Emulator  # noqa: PLC0415 - it imports pyte
    except ModuleNotFoundError as error:
        if error.name not in {"pyte", "wcwidth"}:
            raise
        raise ScreenUnavailable from error
    return Emulator
