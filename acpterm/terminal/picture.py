"""Pictures of a screen: its rows as text with SGR sequences; and what else painters share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acpterm.terminal.hyperlink import linked, row_room
from acpterm.terminal.style import BLANK, PLAIN, Cell, sgr
from acpterm.terminal.told import MODES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acpterm.terminal.screen import Screen

MODES_OFF: Final = "".join(f"\x1b[?{number}l" for number in MODES)


def rows(screen: Screen) -> list[str]:
    """Give each row as text with SGR sequences, ending in default attributes.

    Without blanks at the end, unless they have a background or other attributes.
    """
    grid = screen.grid
    return [row_of(grid.cells_of(y)) for y in range(grid.lines)]


def clipped(cells: list[Cell], left: int, width: int) -> Sequence[Cell]:
    """Give `width` cells from `left` on; a wide character that is cut is blank."""
    if not left and len(cells) <= width:
        return cells
    end = left + width
    cut = cells[left:end]
    if cut and not cut[0].data:
        cut[0] = Cell(" ", cut[0].style)
    if end < len(cells) and cut and not cells[end].data:
        cut[-1] = Cell(" ", cut[-1].style)
    return cut


def trimmed(cells: Sequence[Cell]) -> Sequence[Cell]:
    """Give cells without default blanks at the end."""
    end = len(cells)
    while end and cells[end - 1] == BLANK:
        end -= 1
    return cells[:end]


def row_of(cells: Sequence[Cell], *, links: bool = False) -> str:
    """Give cells as text with SGR sequences, without default blanks at the end.

    `links`: with hyperlinks, too, as long as there is room for them.
    """
    parts: list[str] = []
    style, link, room = PLAIN, "", row_room(len(cells))
    for cell in trimmed(cells):
        if cell.style is not style and cell.style != style:
            if links and cell.style.link != link:
                room -= len(cell.style.link)
                link = cell.style.link if room >= 0 else ""
                parts.append(linked(link))
            if cell.style[:4] != style[:4]:
                parts.append(sgr(cell.style))
            style = cell.style
        parts.append(cell.data)
    if style[:4] != PLAIN[:4]:
        parts.append("\x1b[m")
    if link:
        parts.append(linked(""))
    return "".join(parts)
