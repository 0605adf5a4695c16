"""A screen as a terminal would have to be told of it: escape sequences that paint it.

- `rows`: a picture of it, line by line;
- `snapshot`: all of its state, for a terminal of the same size that is then to follow the program;
- `LEAVE`: what undoes that, when the viewer goes;
- `Frames`: what changes, for a viewer that cannot follow.

Rules:

- Nothing is supposed of the terminal that is painted on: what matters is said, not left out because
  it should be so already. Backgrounds are painted with spaces, since not every terminal erases in
  colour.
- What a program wrote as a title or a character is passed on only as far as it prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acpterm.terminal.frames import Frames
from acpterm.terminal.hyperlink import linked
from acpterm.terminal.key_reports import NO_FLAGS, NO_LEVEL, levelled, pushed
from acpterm.terminal.picture import MODES_OFF, row_of, rows, trimmed
from acpterm.terminal.style import BLANK, sgr
from acpterm.terminal.told import DECAWM, DECOM, DECTCEM, IRM, LNM

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acpterm.terminal.cells import Rows
    from acpterm.terminal.grid import Grid, Saved
    from acpterm.terminal.screen import Screen
    from acpterm.terminal.told import Told

__all__ = ["LEAVE", "Frames", "rows", "snapshot"]

# An unfinished sequence is ended, and so are an update that is shown when it is whole, and a link.
_ENDED: Final = "\x1b\\\x1b[?2026l\x1b]8;;\x1b\\"
# Then the main screen, the whole of it, nothing in force.
_NEUTRAL: Final = (
    f"{_ENDED}\x1b[?1049l{NO_LEVEL}{NO_FLAGS}\x1b[!p"
    f"\x1b[?6l\x1b[?7h\x1b[4l\x1b[20l\x1b[r\x1b(B\x1b)0\x0f\x1b[m"
    f"{MODES_OFF}"
)
# Leaving the alternate screen puts the cursor where it was saved, which may be long ago when it is
# not shown. So it is entered first: that saves the cursor, unless it is shown. Keys are said as
# usual, whatever has been put on that stack (kitty), and neither colours nor sizes are told.
LEAVE: Final = (
    f"{_ENDED}\x1b[?1049h{NO_LEVEL}{NO_FLAGS}\x1b[?1049l{NO_FLAGS}"
    f"\x1b7\x1b[r\x1b[?6l\x1b8\x1b[?7h\x1b[4l\x1b[20l\x1b(B\x1b)B\x0f\x1b[m"
    f"{MODES_OFF}\x1b>\x1b[?2031l\x1b[?2048l\x1b[?5W\x1b[?25h\x1b[0 q"
).encode()
"""What a viewer prints when it goes: the terminal is as before, but for what was painted."""


def snapshot(screen: Screen) -> bytes:
    """Give what brings a terminal of the same size, in whatever state, into this screen's state.

    It ends with the beginning of a sequence that is not whole yet, if there is one, so that the
    program's next bytes can follow. A title that the program never set is left as it is.
    """
    grid = screen.grid
    keys_main, keys_alternate = grid.told.keys.stacks
    parts = [_NEUTRAL, pushed(keys_main), *_tab_stops(grid.tabstops)]
    if grid.main is None:
        parts += _painted(grid, grid.buffer)
    else:
        under, saved = grid.main
        parts += _painted(grid, under)
        parts += _saved_cursor(grid, under, saved)
        # Entering saves the cursor, in the state it is in; behind it nothing is in force again.
        parts += [f"\x1b[?1049h{NO_FLAGS}{pushed(keys_alternate)}"]
        parts += ["\x1b[?6l\x1b[?7h\x1b(B\x1b)0\x0f\x1b[m"]
        parts += _painted(grid, grid.buffer)
    if not _is_new(grid.saved):
        parts += _saved_cursor(grid, grid.buffer, grid.saved)
        parts += ["\x1b7\x1b[?6l\x1b[?7h\x1b(B\x1b)0\x0f\x1b[m"]
    parts += _told(grid.told)
    parts += ["\x1b[?25h" if DECTCEM in grid.mode else "\x1b[?25l"]
    top = 0
    if grid.margins:
        parts += [f"\x1b[{grid.margins.top + 1};{grid.margins.bottom + 1}r"]
    if DECOM in grid.mode:
        top = grid.margins.top if grid.margins else 0
        parts += ["\x1b[?6h"]
    parts += _cursor(grid, grid.buffer, grid.cursor.x, grid.cursor.y, top)
    parts += _charsets(grid.g0_charset, grid.g1_charset, grid.charset)
    parts += [
        sgr(grid.pen.style),
        linked(grid.pen.style.link) if grid.pen.style.link else "",
        "" if DECAWM in grid.mode else "\x1b[?7l",
        "\x1b[4h" if IRM in grid.mode else "",
        "\x1b[20h" if LNM in grid.mode else "",
    ]
    return "".join(parts).encode() + screen.held


def _is_new(saved: Saved) -> bool:
    from acpterm.terminal.grid import NOTHING_SAVED  # noqa: PLC0415  it imports pyte

    return saved == NOTHING_SAVED


def _painted(grid: Grid, buffer: Rows) -> Iterable[str]:
    # Row by row: some terminals keep a screen that is erased at once in their history.
    for y in range(grid.lines):
        cells = trimmed(grid.cells_of(y, buffer))
        rest = "\x1b[K" if len(cells) < grid.columns else ""
        yield f"\x1b[{y + 1}H{row_of(cells, links=True)}{rest}"


def _tab_stops(stops: set[int]) -> Iterable[str]:
    yield "\x1b[3g"
    for x in sorted(stops):
        yield f"\x1b[1;{x + 1}H\x1bH"


def _saved_cursor(grid: Grid, buffer: Rows, saved: Saved) -> Iterable[str]:
    """Put the cursor, and all that is saved with it, where `saved` has it; no region is set."""
    if DECOM in saved.modes:
        yield "\x1b[?6h"
    yield from _cursor(grid, buffer, saved.x, saved.y, 0)
    yield from _charsets(saved.g0_charset, saved.g1_charset, saved.charset)
    yield sgr(saved.pen.style)
    if DECAWM not in saved.modes:
        yield "\x1b[?7l"


def _cursor(grid: Grid, buffer: Rows, x: int, y: int, top: int) -> Iterable[str]:
    """Put the cursor at `x` and `y`, of a region that begins at `top`.

    Where the next character is to wrap, the last one is written again. So it is where REP may
    follow, which repeats it.
    """
    cells = grid.cells_of(y, buffer)
    cells += [BLANK] * (x + 1 - len(cells))
    before = x - 1
    if before > 0 and not cells[before].data:
        before -= 1
    wraps = x >= grid.columns
    # In the middle of a wide character nothing can be drawn up to the cursor.
    if wraps or (before >= 0 and cells[x].data and cells[before].data == grid.last):
        data, style = cells[before]
        begin, end = (linked(style.link), linked("")) if style.link else ("", "")
        yield f"\x1b[{y - top + 1};{before + 1}H{sgr(style)}{begin}{data}{end}"
    else:
        yield f"\x1b[{y - top + 1};{x + 1}H"


def _charsets(g0: str, g1: str, charset: int) -> Iterable[str]:
    for designate, table in (("(", g0), (")", g1)):
        # Two are known: ASCII, whose table changes nothing, and the line drawing of the VT100.
        yield f"\x1b{designate}{'B' if table[ord('q')] == 'q' else '0'}"
    yield "\x0e" if charset else "\x0f"


def _told(told: Told) -> Iterable[str]:
    for number in told.modes:
        yield f"\x1b[?{number}h"
    yield "\x1b=" if told.keypad else "\x1b>"
    if told.keys.level:
        yield levelled(told.keys.level)
    yield f"\x1b[{told.shape} q"
    if told.title is not None:
        yield f"\x1b]2;{told.title}\x1b\\"
