"""Escape sequences that put a viewer's terminal into the state of a screen, and back.

A *viewer's terminal* is the terminal in which the user attaches, such as xterm. `frames` serves
viewers whose terminal has another size.

- `snapshot`: the whole state, for a viewer of the same size that is then sent the program's output;
- `alternate_snapshot`: the alternate screen only, for a viewer whose main screen must not change;
- `tail_snapshot`: the last output, if no emulator is installed;
- `LEAVE`: restores the viewer's terminal when it detaches.

Rules:

- Nothing is assumed about the viewer's terminal: all relevant state is sent, even what should be
  the default. Backgrounds are painted with spaces, since not every terminal erases in colour.
- Only printable characters of titles and cells are passed on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from acpterm.terminal.vt.dump import IRM, LNM, NOTHING_SAVED, Charsets, Saved
from acpterm.terminal.vt.library import load
from acpterm.terminal.vt.rows import linked, row_of
from acpterm.terminal.vt.screen import DECAWM, DECLRMM, DECOM, MODES
from acpterm.terminal.vt.style import BLANK, Cell, sgr

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acpterm.terminal.shared_ring import SharedRing
    from acpterm.terminal.vt.screen import Screen

# Entries in kitty's stack of keyboard flags, of which each screen has one, main and alternate.
_KEY_FLAGS_DEPTH: Final = 8
# Empties the stack of the current screen, whatever is on it.
NO_KEY_FLAGS: Final = f"\x1b[<{_KEY_FLAGS_DEPTH + 1}u"
NO_OTHER_KEYS: Final = "\x1b[>4m"
MODES_OFF: Final = "".join(f"\x1b[?{number}l" for number in MODES)
# Ends an incomplete sequence, a synchronized update and a hyperlink.
_ENDED: Final = "\x1b\\\x1b[?2026l\x1b]8;;\x1b\\"
_DEFAULTS: Final = "\x1b[?6l\x1b[?7h\x1b(B\x1b)0\x1b*B\x1b+B\x0f\x1b[m"
# Also selects the main screen, without margins, and resets everything to its default.
NEUTRAL: Final = (
    f"{_ENDED}\x1b[?1049l{NO_OTHER_KEYS}{NO_KEY_FLAGS}\x1b[!p"
    f"\x1b[4l\x1b[20l\x1b[?69l\x1b[r{_DEFAULTS}{MODES_OFF}"
)
# Selects the alternate screen instead, without the soft reset, which may lose the main screen's
# cursor position.
_ALTERNATE: Final = (
    f"{_ENDED}\x1b[?1049h{NO_OTHER_KEYS}{NO_KEY_FLAGS}"
    f"\x1b[4l\x1b[20l\x1b[?69l\x1b[r{_DEFAULTS}{MODES_OFF}"
)
# Leaving the alternate screen restores the saved cursor, which may be outdated if the main screen
# is shown. So enter the alternate screen first: that saves the cursor, unless it is shown already.
# Empty kitty's stack of keyboard flags, and disable reports of colour scheme and size.
LEAVE: Final = (
    f"{_ENDED}\x1b[?1049h{NO_OTHER_KEYS}{NO_KEY_FLAGS}\x1b[?1049l{NO_KEY_FLAGS}"
    f"\x1b7\x1b[?69l\x1b[r\x1b[?6l\x1b8\x1b[?7h\x1b[4l\x1b[20l\x1b(B\x1b)B\x1b*B\x1b+B\x0f\x1b[m"
    f"{MODES_OFF}\x1b>\x1b[?2031l\x1b[?2048l\x1b[?5W\x1b[?25h\x1b[0 q"
).encode()
"""Restores the state of the terminal in which a user has attached, after the user detaches. The
painted cells remain."""
_DESIGNATIONS: Final = "()*+"
# utf8, ascii, british, dec_special.
_SETS: Final = "BBA0"
_LOCKS: Final = ("\x0f", "\x0e", "\x1bn", "\x1bo")
_TAIL_BYTES: Final = 16 * 1024
_ALTERNATE_SWITCH: Final = re.compile(rb"\x1b\[\?(?:47|104[79])([hl])")


def snapshot(screen: Screen) -> bytes:
    """Return the bytes that put a viewer's terminal of the same size into the state of `screen`.

    A viewer's terminal is the one in which the user attaches. The bytes exclude the beginning of an
    incomplete sequence (`Screen.held`). They set the title only if the program has set one.
    """
    parts = [NEUTRAL, *_tab_stops(screen.tabs)]
    main = screen.main
    if main is not None:
        parts += [pushed_key_flags(main.keys), *_painted(screen, main=True)]
        parts += _saved_cursor(screen, main.saved or NOTHING_SAVED, main=True)
        # Entering the alternate screen saves the cursor; then reset everything to its default.
        parts += [f"\x1b[?1049h{NO_KEY_FLAGS}{_DEFAULTS}"]
    return "".join([*parts, *_active(screen)]).encode()


def alternate_snapshot(screen: Screen) -> bytes:
    """Return the bytes that put the alternate screen of a viewer's terminal into a screen's state.

    `screen` must show the alternate screen. Unlike `snapshot`, the bytes do not change the main
    screen of the viewer's terminal (the terminal in which the user attaches). When the program
    leaves the alternate screen, the caller must paint the main screen.
    """
    return "".join([_ALTERNATE, *_tab_stops(screen.tabs), *_active(screen)]).encode()


def tail_snapshot(ring: SharedRing, rows: int) -> bytes:
    """Return bytes that reset the viewer's terminal, then the last lines of output, at most `rows`.

    For use if no emulator is installed. Raises `EmulatorMissingError` while the program shows the
    alternate screen, which only an emulator can paint.
    """
    data = ring.read(ring.start).data
    switches = _ALTERNATE_SWITCH.findall(data)
    if switches and switches[-1] == b"h":
        load()
    tail = data[-_TAIL_BYTES:]
    lines = tail.split(b"\n")
    # A cut line may begin within a sequence.
    whole = lines if len(tail) == len(data) and not ring.start else lines[1:]
    return NEUTRAL.encode() + b"\x1b[H\x1b[J" + b"\n".join(whole[-rows:])


def _active(screen: Screen) -> list[str]:
    """Return the sequences that paint the current screen, main or alternate, and set its state."""
    parts = [pushed_key_flags(screen.keys), *_painted(screen, main=False)]
    parts += _saved_cursor(screen, screen.saved or NOTHING_SAVED, main=False)
    parts += [f"\x1b7{_DEFAULTS}"]
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
    """Return sequences that set modes, keyboard, cursor shape and title as on `screen`."""
    yield from (f"\x1b[?{number}h" for number in screen.modes)
    yield "\x1b=" if screen.application_keypad else "\x1b>"
    if screen.other_keys:
        yield other_keys_level(screen.other_keys)
    yield shape_sequence(screen)
    if screen.title:
        yield f"\x1b]2;{screen.title}\x1b\\"


def shape_sequence(screen: Screen) -> str:
    """Return the sequences that set the cursor's shape as on `screen`."""
    blinks = "\x1b[?12h" if screen.is_default_cursor_blinking else ""
    return f"\x1b[{screen.cursor_shape} q{blinks}"


def _painted(screen: Screen, *, main: bool) -> Iterable[str]:
    # Row by row: some terminals move a screen that is erased as a whole to their history.
    for y in range(screen.rows):
        cells = screen.cells(y, main=main)
        rest = "\x1b[K" if len(cells) < screen.cols else ""
        yield f"\x1b[{y + 1}H{row_of(cells, links=True)}{rest}"


def _tab_stops(stops: Iterable[int]) -> Iterable[str]:
    yield "\x1b[3g"
    for x in stops:
        yield f"\x1b[1;{x + 1}H\x1bH"


def _saved_cursor(screen: Screen, saved: Saved, *, main: bool) -> Iterable[str]:
    """Return the sequences that set the cursor of the viewer's terminal as in `saved`.

    The caller then saves this cursor (DECSC). The viewer's terminal must have no margins. `main` is
    true for the cursor of the main screen.
    """
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
    """Return the column and the row, from 0, that cursor addresses are relative to (DECOM)."""
    if screen.is_clipped or not screen.is_set(DECOM):
        return 0, 0
    return screen.side_margins[0] if screen.is_set(DECLRMM) else 0, screen.margins[0]


def _cursor(
    screen: Screen, x: int, y: int, *, main: bool = False, origin: tuple[int, int] = (0, 0)
) -> Iterable[str]:
    """Return the sequences that move the cursor to column `x` and row `y` of the screen.

    They address the cursor relative to `origin`. In two cases they write the character before the
    cursor again: if the cursor is past the last column (`x` is the screen's width), so that the
    next character wraps; and if the character before the cursor equals the last one printed, so
    that a later REP repeats it. `main` selects the main screen, otherwise the current one.
    """
    left, top = origin
    cells = screen.cells(y, main=main) if y < screen.rows else []
    cells += [BLANK] * (x + 1 - len(cells))
    before = x - 1
    if before > 0 and not cells[before].data:
        before -= 1
    wraps = x >= screen.cols
    # Within a wide character, writing cannot end at the cursor.
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


def pushed_key_flags(stack: tuple[int, ...]) -> str:
    """Return the sequences that build kitty's stack of keyboard flags from an empty stack."""
    first, *rest = stack
    return (key_flags(first) if first else "") + "".join(f"\x1b[>{number}u" for number in rest)


def key_flags(number: int) -> str:
    """Return the sequence that sets kitty's current keyboard flags without pushing any."""
    return f"\x1b[={number}u"


def other_keys_level(number: int) -> str:
    """Return the sequence that sets the level of xterm's modifyOtherKeys."""
    return f"\x1b[>4;{number}m"
