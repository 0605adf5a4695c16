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
from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from acpterm.cli._output import is_colour_wanted, window
from acpterm.client.sanitize import one_line
from acpterm.client.user.format import ENDING, HEADER, NOTHING, WAITS, Row
from acpterm.client.user.list_view import ListView, Part

# Columns between two columns.
_GAP: Final = 2
# Where there is not room for all of it, these columns go, in this order, and then the command.
_LESS: Final = ("size", "session", "output", "agent", "owner", "age", "name")
# What is left of these before a column goes; they get what room there is, in this order.
_SHRUNK: Final = {"name": 20, "command": 24, "agent": 16, "session": 12}
# A command or a state of which less can be seen says nothing.
_LEAST: Final = 4
_FOREVER: Final = 1 << 20


def text_of(rows: Sequence[Row]) -> str:
    """Draw a list of terminals for stdout, as it is now."""
    if os.isatty(1):
        # An ID is not cut, however narrow the window.
        columns = max(window()[0], *(cell_len(row.id) for row in (HEADER, *rows)))
        return _drawn(table(rows, columns), columns, colours=is_colour_wanted())
    return _drawn(table(rows, None), _FOREVER, colours=False)


def table(
    rows: Sequence[Row],
    columns: int | None,
    *,
    selected: int | None = None,
    among: Sequence[Row] | None = None,
) -> Table:
    """Draw a list of terminals in so many columns; None for as many as it needs.

    `among`: all rows of a list of which these are a part, for which the columns are wide enough.
    """
    sizes = _sizes(rows if among is None else among, columns)
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name, size in sizes.items():
        header = Text(getattr(HEADER, name))
        drawn.add_column(header, width=size, no_wrap=True, overflow="ellipsis")
    for place, row in enumerate(rows):
        cells = (_cell(name, getattr(row, name)) for name in sizes)
        drawn.add_row(*cells, style="reverse" if place == selected else None)
    return drawn


def _sizes(rows: Sequence[Row], columns: int | None) -> dict[str, int]:
    """Choose the columns that there is room for, and their widths. The ID is never cut."""
    needs = {
        name: max(cell_len(getattr(row, name)) for row in (HEADER, *rows)) for name in Row._fields
    }
    if columns is None or _total(needs) <= columns:
        return needs
    empty = [name for name in _LESS if all(getattr(row, name) == NOTHING for row in rows)]
    sizes = {name: min(need, _SHRUNK.get(name, need)) for name, need in needs.items()}
    for name in (*empty, *_LESS):
        if _total(sizes) <= columns:
            break
        sizes.pop(name, None)
    for name in ("command", "state"):
        over = _total(sizes) - columns
        if over > 0:
            sizes[name] -= over
            if sizes[name] < _LEAST:
                del sizes[name]
    for name in _SHRUNK:
        if name in sizes:
            room = max(0, columns - _total(sizes))
            sizes[name] = min(needs[name], sizes[name] + room)
    return sizes


def _total(sizes: dict[str, int]) -> int:
    return sum(sizes.values()) + _GAP * (len(sizes) - 1)


_STYLES: Final = {
    WAITS: "bold yellow",
    ENDING: "yellow",
    "running": "green",
    "exited 0": "dim",
}


def _cell(name: str, value: str) -> Text:
    if name == "state":
        how, released, _ = value.partition(", released")
        return Text(value, style="dim" if released else _STYLES.get(how, "red"))
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
        colours = is_colour_wanted()
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

    def draw(self, view: ListView, note: str = "") -> None:
        """Draw the part of a list that there is room for, and `note` below it."""
        columns, lines = window()
        self._console.size = ConsoleDimensions(columns, lines)
        # The header, and the last line.
        part = view.part(lines - 2)
        among = [item.row for item in view.items]
        drawn = table(part.rows, columns, selected=part.selected, among=among)
        blank = [Text("")] * (lines - 2 - len(part.rows))
        last = Text(_last_line(view, part, note), no_wrap=True, overflow="ellipsis", style="dim")
        self._live.update(Group(drawn, *blank, last), refresh=True)


def _last_line(view: ListView, part: Part, note: str) -> str:
    if view.is_typing_filter:
        return f"/{one_line(view.filter)}"
    if note:
        return one_line(note)
    shown = f"{part.first + 1}-{part.first + len(part.rows)} of {part.total}"
    words = [shown if part.total else "none"]
    if view.filter:
        words.append(f"filter: {one_line(view.filter)}")
    return "   ".join([*words, "Enter attaches, / filters, q quits"])
