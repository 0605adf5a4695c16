"""The table of terminals that `acpterm ls` prints, without borders.

In a window, columns are dropped or cut until the table fits. Elsewhere it is as wide as its
content.
"""

import os
import time
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Final

from acpterm.acp.user_api import ACTIVE, TerminalInfo
from acpterm.cli._output import is_colour_wanted
from acpterm.commands.completion import short_ids
from acpterm.commands.format import ENDING, HEADER, NOTHING, Item, Row, in_list_order, row
from acpterm.commands.output.blocking_stdout import window_size

# Spaces between two columns.
_GAP: Final = 2
# Columns that are dropped in a narrow window, in this order, before those of `_LEAST`.
_DROPPED: Final = ("size", "session", "output", "agent", "where", "owner", "age")
# Widths to which columns are cut before a column is dropped. If the table is narrower than the
# window afterwards, these columns are widened again, in this order.
_CUT: Final = {"name": 20, "command": 24, "agent": 16, "session": 12}
# The last columns beside the id: they are cut to these widths, in this order, and then dropped, in
# this order. All of them fit into 40 cells.
_LEAST: Final = {"command": 8, "state": 10, "name": 8}

# SGR parameters (ECMA-48) of a style: an attribute and a colour.
_PLAIN: Final = ("", "")
_BOLD: Final = ("1", "")
_DIM: Final = ("2", "")
_CYAN: Final = ("", "36")
_RED: Final = ("", "31")
_WAITING: Final = ("1", "33")
# The style of each state; other states are red.
_STATES: Final = {ENDING: ("", "33"), "running": ("", "32"), "queued": ("", "33"), "exited 0": _DIM}
_REVERSE: Final = "7"


class Styles(Enum):
    """The styling of a table's text: none, attributes (bold, dim), or attributes and colours."""

    NONE = auto()
    ATTRIBUTES = auto()
    COLOURS = auto()


def items(terminals: Iterable[TerminalInfo]) -> list[Item]:
    now, found = time.time(), in_list_order(terminals)
    short = short_ids([info.terminal_id for info in found])
    return [Item(info.terminal_id, row(info, short[info.terminal_id], now)) for info in found]


def text_of(rows: Sequence[Row]) -> str:
    """Return a table to print on stdout: no wider than the window, unless the ids are."""
    if os.isatty(1):
        # An ID is never cut, even if the window is narrower.
        columns = max(window_size()[0], *(cell_len(row.id) for row in (HEADER, *rows)))
        styles = Styles.COLOURS if is_colour_wanted() else Styles.NONE
        return "\n".join(table(rows, columns, styles))
    return "\n".join(table(rows, None, Styles.NONE))


def fitting_text(terminals: Iterable[TerminalInfo]) -> str:
    """Return the table of what fits the window; the last line then counts the rest."""
    found = in_list_order(terminals)
    rows = [item.row for item in items(found)]
    columns, height = window_size()
    # The header and the shell's prompt take one line each.
    if not os.isatty(1) or len(rows) + 2 <= height:
        return text_of(rows)
    shown = max(0, height - 3)
    left = found[shown:]
    running = sum(info.state in ACTIVE for info in left)
    counts = [(running, "running"), (len(left) - running, "ended")]
    more = ", ".join(f"{count} {state}" for count, state in counts if count)
    return f"{text_of(rows[:shown])}\n{cut_to(f'and {more}: see acpterm ls --all', columns)}"


def table(
    rows: Sequence[Row],
    columns: int | None,
    styles: Styles,
    *,
    selected: int | None = None,
    among: Sequence[Row] | None = None,
) -> list[str]:
    """Return lines of at most `columns` cells, if given; `among` are the rows that set widths."""
    sizes = _sizes(rows if among is None else among, columns)
    headers = [(getattr(HEADER, name), size, _BOLD) for name, size in sizes.items()]
    lines = [_line(headers, styles)]
    for index, current in enumerate(rows):
        values = [(name, getattr(current, name), size) for name, size in sizes.items()]
        cells = [(value, size, _style(name, value)) for name, value, size in values]
        lines.append(_line(cells, styles, is_selected=index == selected))
    return lines


def _line(
    cells: Sequence[tuple[str, int, tuple[str, str]]], styles: Styles, *, is_selected: bool = False
) -> str:
    # A cell is a text, the width of its column, and a style as (attribute, colour).
    line = ""
    for number, (text, size, (attribute, colour)) in enumerate(cells, 1):
        cut = cut_to(text, size)
        # Spaces at the end of a selected line are highlighted, so they must not exceed the window.
        blank = " " * (size - cell_len(cut) + (_GAP if number < len(cells) else 0))
        codes = [attribute, colour if styles is Styles.COLOURS else "", _REVERSE * is_selected]
        code = ";".join(filter(None, codes))
        if styles is Styles.NONE or not code:
            line += cut + blank
        elif is_selected:
            line += f"\x1b[{code}m{cut}{blank}\x1b[0m"
        else:
            line += f"\x1b[{code}m{cut}\x1b[0m{blank}"
    return line.rstrip()


def cell_len(text: str) -> int:
    """Return the width of a text on a terminal, in character cells."""
    if text.isascii():
        return len(text)
    from wcwidth import wcwidth  # noqa: PLC0415  slow to import, and rarely needed

    return sum(max(0, wcwidth(character)) for character in text)


def cut_to(text: str, size: int) -> str:
    """Return a text, cut to `size` character cells if it is wider; a cut text ends with "…"."""
    if cell_len(text) <= size:
        return text
    while cell_len(text) >= size and text:
        text = text[: min(len(text) - 1, size - 1)]
    return f"{text}…" if size else ""


def _sizes(rows: Sequence[Row], columns: int | None) -> dict[str, int]:
    """Choose the columns that fit into `columns` cells; return their widths by name."""
    needs = {
        name: max(cell_len(getattr(row, name)) for row in (HEADER, *rows)) for name in Row._fields
    }
    if columns is None or _total(needs) <= columns:
        return needs
    empty = [name for name in needs if all(getattr(row, name) == NOTHING for row in rows)]
    sizes = {name: min(need, _CUT.get(name, need)) for name, need in needs.items()}
    for name in (*empty, *_DROPPED):
        if _total(sizes) <= columns:
            break
        sizes.pop(name, None)
    for name in (name for name in _LEAST if name in sizes):
        over = max(0, _total(sizes) - columns)
        sizes[name] = max(min(_LEAST[name], sizes[name]), sizes[name] - over)
    for name in _LEAST:
        if _total(sizes) > columns:
            sizes.pop(name, None)
    for name in ("state", *_CUT):
        if name in sizes:
            room = max(0, columns - _total(sizes))
            sizes[name] = min(needs[name], sizes[name] + room)
    return sizes


def _total(sizes: dict[str, int]) -> int:
    return sum(sizes.values()) + _GAP * (len(sizes) - 1)


def _style(name: str, value: str) -> tuple[str, str]:
    if name == "state":
        how, more, _ = value.partition(", ")
        if " waits" in f" {how}":
            return _WAITING
        if more and "released" not in value:
            return _STATES["running"]
        return _DIM if more else _STATES.get(how, _RED)
    if name == "id":
        return _CYAN
    return _DIM if value == NOTHING else _PLAIN
