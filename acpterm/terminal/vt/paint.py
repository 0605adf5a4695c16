"""Escape sequences that bring a viewer's terminal into the state of a screen, and back.

- `snapshot`: all of it, for a terminal of the same size that is then to follow the program;
- `alternate_snapshot`: the alternate screen alone, for one whose main screen is to stay as it is;
- `LEAVE`: what undoes that, when the viewer goes.

Rules:

- Nothing is assumed of the viewer's terminal: what matters is sent, even where it should be so
  already. Backgrounds are painted with spaces, since not every terminal erases in colour.
- What a program wrote as a title or a character is passed on only as far as it prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acpterm.terminal.vt import keys
from acpterm.terminal.vt.dump import IRM, LNM, NOTHING_SAVED, Charsets, Saved
from acpterm.terminal.vt.rows import linked, row_of
from acpterm.terminal.vt.screen import DECAWM, DECLRMM, DECOM, MODES
from acpterm.terminal.vt.style import BLANK, Cell, sgr

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acpterm.terminal.vt.screen import Screen

MODES_OFF: Final = "".join(f"\x1b[?{number}l" for number in MODES)
# An unfinished sequence is ended, and so are an update that is shown when it is whole, and a link.
_ENDED: Final = "\x1b\\\x1b[?2026l\x1b]8;;\x1b\\"
_NOTHING_IN_FORCE: Final = "\x1b[?6l\x1b[?7h\x1b(B\x1b)0\x1b*B\x1b+B\x0f\x1b[m"
# Then the main screen, the whole of it, nothing in force.
NEUTRAL: Final = (
    f"{_ENDED}\x1b[?1049l{keys.NO_LEVEL}{keys.NO_FLAGS}\x1b[!p"
    f"\x1b[4l\x1b[20l\x1b[?69l\x1b[r{_NOTHING_IN_FORCE}{MODES_OFF}"
)
# The alternate screen instead. No soft reset: that may forget where the main screen's cursor was.
_ALTERNATE: Final = (
    f"{_ENDED}\x1b[?1049h{keys.NO_LEVEL}{keys.NO_FLAGS}"
    f"\x1b[4l\x1b[20l\x1b[?69l\x1b[r{_NOTHING_IN_FORCE}{MODES_OFF}"
)
# Leaving the alternate screen puts the cursor where it was saved, which may be long ago when it is
# not shown. So it is entered first: that saves the cursor, unless it is shown. Keys are said as
# usual, whatever has been put on that stack (kitty), and neither colours nor sizes are told.
LEAVE: Final = (
    f"{_ENDED}\x1b[?1049h{keys.NO_LEVEL}{keys.NO_FLAGS}\x1b[?1049l{keys.NO_FLAGS}"
    f"\x1b7\x1b[?69l\x1b[r\x1b[?6l\x1b8\x1b[?7h\x1b[4l\x1b[20l\x1b(B\x1b)B\x1b*B\x1b+B\x0f\x1b[m"
    f"{MODES_OFF}\x1b>\x1b[?2031l\x1b[?2048l\x1b[?5W\x1b[?25h\x1b[0 q"
).encode()
"""What a viewer prints when it goes: the terminal is as before, but for what was painted."""
_DESIGNATIONS: Final = "()*+"
# utf8, ascii, british, dec_special.
_SETS: Final = "BBA0"
_LOCKS: Final = ("\x0f", "\x0e", "\x1bn", "\x1bo")


def snapshot(screen: Screen) -> bytes:
    """Return what brings a terminal of the same size, in whatever state, into this screen's state.

    It does not have the beginning of a sequence that is not complete yet (`Screen.held`). A title
    that the program never set is left as it is.
    """
    parts = [NEUTRAL, *_tab_stops(screen.tabs)]
    main = screen.main
    if main is not None:
        parts += [keys.pushed(main.keys), *_painted(screen, main=True)]
        parts += _saved_cursor(screen, main.saved or NOTHING_SAVED, main=True)
        # Entering saves the cursor, in the state it is in; behind it nothing is in force again.
        parts += [f"\x1b[?1049h{keys.NO_FLAGS}{_NOTHING_IN_FORCE}"]
    return "".join([*parts, *_active(screen)]).encode()


def alternate_snapshot(screen: Screen) -> bytes:
    """Return what `snapshot` does for the alternate screen, which is shown, and leave the main one.

    When the program leaves the alternate screen, the main one has to be painted.
    """
    return "".join([_ALTERNATE, *_tab_stops(screen.tabs), *_active(screen)]).encode()


def _active(screen: Screen) -> list[str]:
    """Return what paints the screen that is shown, and sets all that is in force."""
    parts = [keys.pushed(screen.keys), *_painted(screen, main=False)]
    parts += _saved_cursor(screen, screen.saved or NOTHING_SAVED, main=False)
    parts += [f"\x1b7{_NOTHING_IN_FORCE}"]
    parts += mode_sequences(screen)
    parts += ["\x1b[?25h" if screen.cursor_visible else "\x1b[?25l"]
    parts += _margins(screen)
    x, y = screen.cursor
    parts += _cursor(screen, x + screen.wraps, y, origin=_origin(screen))
    parts += _charsets(screen.charsets)
    parts += [
        sgr(screen.pen),
        linked(screen.pen.link) if screen.pen.link else "",
        "" if screen.is_set(DECAWM) else "\x1b[?7l",
        "\x1b[4h" if screen.is_set(IRM) else "",
        "\x1b[20h" if screen.is_set(LNM) else "",
    ]
    return parts


def mode_sequences(screen: Screen) -> Iterable[str]:
    """Return what sets the modes, the keyboard, the cursor's shape and the title."""
    yield from (f"\x1b[?{number}h" for number in screen.modes)
    yield "\x1b=" if screen.application_keypad else "\x1b>"
    if screen.other_keys:
        yield keys.level(screen.other_keys)
    yield shape_sequence(screen)
    if screen.title:
        yield f"\x1b]2;{screen.title}\x1b\\"


def shape_sequence(screen: Screen) -> str:
    """Return what sets the cursor's shape."""
    blinks = "\x1b[?12h" if screen.is_default_cursor_blinking else ""
    return f"\x1b[{screen.cursor_shape} q{blinks}"


def _painted(screen: Screen, *, main: bool) -> Iterable[str]:
    # Row by row: some terminals keep a screen that is erased at once in their history.
    for y in range(screen.rows):
        cells = screen.cells(y, main=main)
        rest = "\x1b[K" if len(cells) < screen.cols else ""
        yield f"\x1b[{y + 1}H{row_of(cells, links=True)}{rest}"


def _tab_stops(stops: Iterable[int]) -> Iterable[str]:
    yield "\x1b[3g"
    for x in stops:
        yield f"\x1b[1;{x + 1}H\x1bH"


def _saved_cursor(screen: Screen, saved: Saved, *, main: bool) -> Iterable[str]:
    """Put the cursor, and all that is saved with it, where `saved` has it; no region is set."""
    if saved.origin:
        yield "\x1b[?6h"
    yield from _cursor(screen, saved.x, saved.y, main=main)
    yield from _charsets(saved.charsets)
    yield sgr(saved.pen)


def _margins(screen: Screen) -> Iterable[str]:
    if screen.is_clipped:
        return
    top, bottom = screen.margins
    if (top, bottom) != (0, screen.rows - 1):
        yield f"\x1b[{top + 1};{bottom + 1}r"
    if screen.is_set(DECLRMM):
        left, right = screen.side_margins
        yield f"\x1b[?69h\x1b[{left + 1};{right + 1}s"
    if screen.is_set(DECOM):
        yield "\x1b[?6h"


def _origin(screen: Screen) -> tuple[int, int]:
    """Return the column and the row that cursor addresses count from."""
    if screen.is_clipped or not screen.is_set(DECOM):
        return 0, 0
    return screen.side_margins[0] if screen.is_set(DECLRMM) else 0, screen.margins[0]


def _cursor(
    screen: Screen, x: int, y: int, *, main: bool = False, origin: tuple[int, int] = (0, 0)
) -> Iterable[str]:
    """Put the cursor at `x` and `y`; addresses count from `origin`.

    Where the next character is to wrap, the last one is written again. So it is where REP may
    follow, which repeats it.
    """
    left, top = origin
    cells = screen.cells(y, main=main) if y < screen.rows else []
    cells += [BLANK] * (x + 1 - len(cells))
    before = x - 1
    if before > 0 and not cells[before].data:
        before -= 1
    wraps = x >= screen.cols
    # In the middle of a wide character nothing can be drawn up to the cursor.
    if before >= left and (wraps or (cells[x].data and cells[before].data == screen.last)):
        yield f"\x1b[{y - top + 1};{before - left + 1}H{_written(cells[before])}"
    else:
        yield f"\x1b[{y - top + 1};{x - left + 1}H"


def _written(cell: Cell) -> str:
    begin, end = (linked(cell.style.link), linked("")) if cell.style.link else ("", "")
    return f"{sgr(cell.style)}{begin}{cell.data}{end}"


def _charsets(charsets: Charsets) -> Iterable[str]:
    for slot, number in zip(_DESIGNATIONS, charsets.sets, strict=True):
        yield f"\x1b{slot}{_SETS[number]}"
    yield _LOCKS[charsets.gl]
