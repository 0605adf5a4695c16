"""Tables for people, drawn by rich: no boxes, as wide as the terminal, or as wide as they need.

Whoever needs rich has it through this module, which does away with `cli.main`'s refusal of it: by
now structlog is imported.
"""

import io
import os
import sys
from collections.abc import Sequence
from typing import Final, Self

import structlog

if sys.modules.get("rich", structlog) is None:
    del sys.modules["rich"]

from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.table import Table
from rich.text import Text

from acpterm.cli.parts.printing import coloured, window
from acpterm.client.person.listing import HEADER, NOTHING, WAITS, Row

# Columns between two columns.
_GAP: Final = 2
# Columns of the screen that a command is to have; others go for it, these first.
_COMMAND: Final = 24
_LESS: Final = ("size", "session", "output", "agent", "owner", "age", "name")
# The most that these have of a screen.
_MOST: Final = {"session": 12, "agent": 16, "name": 20}
_FOREVER: Final = 1 << 20


def text_of(rows: Sequence[Row]) -> str:
    """Draw a list of terminals for stdout, as it is now."""
    if os.isatty(1):
        columns, _ = window()
        return _drawn(table(rows, columns), columns, colours=coloured())
    return _drawn(table(rows, None), _FOREVER, colours=False)


def table(rows: Sequence[Row], columns: int | None) -> Table:
    """Draw a list of terminals in so many columns; None for as many as it needs."""
    shown = _shown(rows, columns)
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name, size in zip(shown, _sizes(rows, shown, columns), strict=True):
        header = Text(getattr(HEADER, name))
        drawn.add_column(header, width=size, no_wrap=True, overflow="ellipsis")
    for row in rows:
        drawn.add_row(*(_cell(name, getattr(row, name)) for name in shown))
    return drawn


def _shown(rows: Sequence[Row], columns: int | None) -> list[str]:
    """Choose what there is room for: what says nothing goes first, then what can be missed."""
    shown = list(Row._fields)
    if columns is None:
        return shown
    empty = [name for name in _LESS if all(getattr(row, name) == NOTHING for row in rows)]
    command = min(_needs(rows, "command", columns), _COMMAND)
    for name in (*empty, *_LESS):
        if command + sum(_needs(rows, one, columns) + _GAP for one in shown[:-1]) <= columns:
            break
        if name in shown:
            shown.remove(name)
    return shown


def _sizes(rows: Sequence[Row], shown: Sequence[str], columns: int | None) -> list[int]:
    """Give the width of each column: what is too long for the screen is the command, the last."""
    sizes = [_needs(rows, name, columns) for name in shown]
    if columns is not None:
        left = columns - sum(size + _GAP for size in sizes[:-1])
        sizes[-1] = max(1, min(sizes[-1], left))
    return sizes


def _needs(rows: Sequence[Row], name: str, columns: int | None) -> int:
    """Give the width that a column would have."""
    widest = max(cell_len(getattr(row, name)) for row in (HEADER, *rows))
    return widest if columns is None else min(widest, _MOST.get(name, widest))


_STYLES: Final = {
    WAITS: "bold yellow",
    "running": "green",
    "exited with 0": "dim",
    "released": "dim",
}


def _cell(name: str, value: str) -> Text:
    if name == "state":
        return Text(value, style=_STYLES.get(value, "red"))
    if name == "id":
        return Text(value, style="cyan")
    return Text(value, style="dim" if value == NOTHING else "")


def _drawn(drawn: Table | Text, columns: int, *, colours: bool) -> str:
    to = io.StringIO()
    Console(
        file=to,
        width=columns,
        force_terminal=colours,
        color_system="standard" if colours else None,
        no_color=not colours,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    ).print(drawn)
    return "\n".join(line.rstrip() for line in to.getvalue().splitlines())


class Screen:
    """The whole screen, on which a list is drawn again and again; a context manager."""

    def __init__(self) -> None:
        colours = coloured()
        self._console = Console(
            force_terminal=True,
            color_system="standard" if colours else None,
            no_color=not colours,
            highlight=False,
            emoji=False,
            markup=False,
        )
        self._live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.__exit__(None, None, None)

    def draw(self, rows: Sequence[Row]) -> None:
        """Draw a list: the newest, if there is not room for all."""
        columns, lines = window()
        self._console.size = ConsoleDimensions(columns, lines)
        room = max(lines - 2, 1)
        more = len(rows) - room
        drawn = table(rows[-room:], columns)
        if more > 0:
            drawn.caption = f"and {more} older"
            drawn.caption_justify = "left"
        self._live.update(drawn, refresh=True)
