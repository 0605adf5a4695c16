"""Encoding of a screen's rows as text with SGR sequences and hyperlinks (OSC 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acpterm.terminal.vt.page import ADDRESS_MAX
from acpterm.terminal.vt.style import BLANK, PLAIN, Cell, sgr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acpterm.terminal.vt.screen import EmulatorScreen

# The length of a hyperlink's parameters for which `row_of` leaves room.
_PARAMETERS_MAX: Final = 250


def rows(screen: EmulatorScreen) -> list[str]:
    """Return each row of `screen` as text with SGR sequences, ending in default attributes."""
    return [row_of(screen.cells(y)) for y in range(screen.rows)]


def row_of(cells: Sequence[Cell], *, links: bool = False) -> str:
    """Return cells as text with SGR sequences, and `links` up to a total length."""
    # Without the limit a row could become very long: a link may be 2000 times as long as its text.
    parts: list[str] = []
    style, link, room = PLAIN, "", ADDRESS_MAX + _PARAMETERS_MAX + 8 * len(cells)
    for data, now in trimmed(cells):
        if now is not style and now != style:
            if links and now.link != link:
                room -= len(now.link)
                link = now.link if room >= 0 else ""
                parts.append(linked(link))
            if now[:4] != style[:4]:
                parts.append(sgr(now))
            style = now
        parts.append(data)
    if style[:4] != PLAIN[:4]:
        parts.append("\x1b[m")
    if link:
        parts.append(linked(""))
    return "".join(parts)


def linked(link: str) -> str:
    """Return the sequence that begins a hyperlink; an empty one ends the current link."""
    return f"\x1b]8;{link or ';'}\x1b\\"


def trimmed(cells: Sequence[Cell]) -> Sequence[Cell]:
    end = len(cells)
    while end and cells[end - 1] == BLANK:
        end -= 1
    return cells[:end]


def clipped(cells: list[Cell], left: int, width: int) -> Sequence[Cell]:
    """Return at most `width` cells from column `left` on; half a wide character becomes a blank."""
    if not left and len(cells) <= width:
        return cells
    end = left + width
    cut = cells[left:end]
    if cut and not cut[0].data:
        cut[0] = Cell(" ", cut[0].style)
    if end < len(cells) and cut and not cells[end].data:
        cut[-1] = Cell(" ", cut[-1].style)
    return cut
