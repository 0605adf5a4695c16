"""Escape sequences that put a viewer's terminal into a screen's state.

A *viewer's terminal* is the terminal in which the user attaches, such as xterm. This module serves
those of the same size as the screen (passthrough windows); `frames` serves the others.

- Nothing is assumed about the state of the viewer's terminal: all relevant state is sent, even if
  it is the default. Backgrounds are painted with spaces, since some terminals do not erase in
  colour.
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
    from acpterm.terminal.vt.screen import EmulatorScreen

# The maximum number of entries in kitty's stack of keyboard flags. The main screen has one stack,
# and the alternate screen another.
_KEY_FLAGS_DEPTH: Final = 8
# Empties the current screen's stack of keyboard flags, however many entries it has.
NO_KEY_FLAGS: Final = f"\x1b[<{_KEY_FLAGS_DEPTH + 1}u"
NO_OTHER_KEYS: Final = "\x1b[>4m"
MODES_OFF: Final = "".join(f"\x1b[?{number}l" for number in MODES)
# Ends an incomplete sequence, a synchronized update and a hyperlink.
_ENDED: Final = "\x1b\\\x1b[?2026l\x1b]8;;\x1b\\"
_DEFAULTS: Final = "\x1b[?6l\x1b[?7h\x1b(B\x1b)0\x1b*B\x1b+B\x0f\x1b[m"
# Ends what `_ENDED` ends, selects the main screen, without margins, and resets all state to
# defaults.
NEUTRAL: Final = (
    f"{_ENDED}\x1b[?1049l{NO_OTHER_KEYS}{NO_KEY_FLAGS}\x1b[!p"
    f"\x1b[4l\x1b[20l\x1b[?69l\x1b[r{_DEFAULTS}{MODES_OFF}"
)
# Like `NEUTRAL`, but selects the alternate screen, and does not use the soft reset (DECSTR), which
# may lose the main screen's cursor position.
_ALTERNATE: Final = (
    f"{_ENDED}\x1b[?1049h{NO_OTHER_KEYS}{NO_KEY_FLAGS}"
    f"\x1b[4l\x1b[20l\x1b[?69l\x1b[r{_DEFAULTS}{MODES_OFF}"
)
# Leaving the alternate screen restores the cursor that was saved on entering it. If the main screen
# is shown, that cursor may be outdated. So enter the alternate screen first, which saves the cursor
# if the main screen is shown. Also empty kitty's stacks of keyboard flags, and disable reports of
# colour scheme and size.
LEAVE: Final = (
    f"{_ENDED}\x1b[?1049h{NO_OTHER_KEYS}{NO_KEY_FLAGS}\x1b[?1049l{NO_KEY_FLAGS}"
    f"\x1b7\x1b[?69l\x1b[r\x1b[?6l\x1b8\x1b[?7h\x1b[4l\x1b[20l\x1b(B\x1b)B\x1b*B\x1b+B\x0f\x1b[m"
    f"{MODES_OFF}\x1b>\x1b[?2031l\x1b[?2048l\x1b[?5W\x1b[?25h\x1b[0 q"
).encode()
# Switch from the alternate to the main screen. Reset margins, origin mode, hyperlinks and styles
# first, so that line feeds scroll the whole main screen.
TO_MAIN: Final = b"\x1b\\\x1b]8;;\x1b\\\x1b[?69l\x1b[r\x1b[?6l\x1b[m\x1b[?1049l"
_DESIGNATIONS: Final = "()*+"
# The final byte that designates each character set of `dump.Charsets`.
_SETS: Final = "BBA0"
_LOCKS: Final = ("\x0f", "\x0e", "\x1bn", "\x1bo")
_TAIL_BYTES: Final = 16 * 1024
_ALTERNATE_SWITCH: Final = re.compile(rb"\x1b\[\?(?:47|104[79])([hl])")


def snapshot(screen: EmulatorScreen) -> bytes:
    """Return the bytes that put a viewer's terminal of the same size into the state of `screen`.

    The caller must then send `EmulatorScreen.held`, the beginning of an incomplete sequence.
    """
    parts = [NEUTRAL, *_tab_stops(screen.tabs)]
    main = screen.main
    if main is not None:
        parts += [pushed_key_flags(main.keys), *_painted(screen, main=True)]
        parts += _saved_cursor(screen, main.saved or NOTHING_SAVED, main=True)
        # Entering the alternate screen saves the cursor. Then reset all state to defaults.
        parts += [f"\x1b[?1049h{NO_KEY_FLAGS}{_DEFAULTS}"]
    return "".join([*parts, *_active(screen)]).encode()


def alternate_snapshot(screen: EmulatorScreen) -> bytes:
    """Paint the alternate screen, and leave the viewer's main screen unchanged."""
    # When the program leaves the alternate screen, the caller must paint the main screen.
    return "".join([_ALTERNATE, *_tab_stops(screen.tabs), *_active(screen)]).encode()


def scrolled_to(screen: EmulatorScreen) -> bytes:
    """Return bytes that scroll off what a viewer's main screen has above the lines of `screen`.

    The first line of `screen` scrolls off too: its beginning may only be in the viewer's terminal.
    """
    y, top = screen.cursor[1], 1
    while top < y and len(screen.cells(top - 1)) == screen.cols:
        top += 1
    # Move relative to the cursor: it is at the same text in both, but not in the same row. As many
    # line feeds as lead from the first row to the last then scroll exactly the rows above.
    up = f"\x1b[{y - top}A" if y > top else ""
    plain = "\x1b[4l\x1b[20l\x1b(B\x0f\x1b[m"
    begin = f"{_ENDED}\x1b7\x1b[?69l\x1b[r\x1b[?6l\x1b8{plain}{up}\r"
    return (begin + scrolling_rows(screen)).encode()


def scrolling_rows(screen: EmulatorScreen) -> str:
    """Return the rows of `screen` as lines, which scroll off what a viewer's terminal has above."""
    # Blank lines would do if a snapshot follows, but the window would flicker. The erasure ends a
    # wrapped line of the viewer's terminal.
    rows = (screen.cells(y) for y in range(screen.rows))
    return "\r\n".join(f"\x1b[K{row_of(cells, links=True)}" for cells in rows)


def main_output(data: bytes, *, alternate: bool = False) -> bytes:
    """Return the part of raw output that programs wrote on the main screen.

    `alternate`: whether the output ends on the alternate screen.
    """
    if alternate and not _ALTERNATE_SWITCH.search(data):
        return b""
    parts, start = [], 0
    for switch in _ALTERNATE_SWITCH.finditer(data):
        if switch[1] == b"h" and start >= 0:
            parts.append(data[start : switch.start()])
            start = -1
        elif switch[1] == b"l":
            start = switch.end()
    return b"".join(parts if start < 0 else [*parts, data[start:]])


def tail_snapshot(ring: SharedRing, rows: int) -> bytes:
    """Return a reset and the last lines of output, for a worker without an emulator.

    Raises `EmulatorMissingError` on the alternate screen, which only an emulator can paint.
    """
    data = ring.read(ring.start).data
    switches = _ALTERNATE_SWITCH.findall(data)
    if switches and switches[-1] == b"h":
        load()
    tail = data[-_TAIL_BYTES:]
    lines = tail.split(b"\n")
    # Omit the first line if it was cut: it may begin within a sequence.
    whole = lines if len(tail) == len(data) and not ring.start else lines[1:]
    return NEUTRAL.encode() + b"\x1b[H\x1b[J" + b"\n".join(whole[-rows:])


def _active(screen: EmulatorScreen) -> list[str]:
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


def mode_sequences(screen: EmulatorScreen) -> Iterable[str]:
    yield from (f"\x1b[?{number}h" for number in screen.modes)
    yield "\x1b=" if screen.application_keypad else "\x1b>"
    if screen.other_keys:
        yield other_keys_level(screen.other_keys)
    yield shape_sequence(screen)
    if screen.title:
        yield f"\x1b]2;{screen.title}\x1b\\"


def shape_sequence(screen: EmulatorScreen) -> str:
    blinks = "\x1b[?12h" if screen.is_default_cursor_blinking else ""
    return f"\x1b[{screen.cursor_shape} q{blinks}"


def _painted(screen: EmulatorScreen, *, main: bool) -> Iterable[str]:
    # Erase row by row: some terminals move a screen that is erased as a whole to their scrollback.
    for y in range(screen.rows):
        cells = screen.cells(y, main=main)
        rest = "\x1b[K" if len(cells) < screen.cols else ""
        yield f"\x1b[{y + 1}H{row_of(cells, links=True)}{rest}"


def _tab_stops(stops: Iterable[int]) -> Iterable[str]:
    yield "\x1b[3g"
    for x in stops:
        yield f"\x1b[1;{x + 1}H\x1bH"


def _saved_cursor(screen: EmulatorScreen, saved: Saved, *, main: bool) -> Iterable[str]:
    # The caller then saves the cursor (DECSC). There must be no margins yet.
    if saved.origin:
        yield "\x1b[?6h"
    yield from _cursor(screen, saved.x, saved.y, main=main)
    yield from _charsets(saved.charsets)
    yield sgr(saved.pen)


def _margins(screen: EmulatorScreen) -> Iterable[str]:
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


def _origin(screen: EmulatorScreen) -> tuple[int, int]:
    """Return the column and row to which cursor addresses are relative (DECOM)."""
    if screen.is_clipped or not screen.is_set(DECOM):
        return 0, 0
    return screen.side_margins[0] if screen.is_set(DECLRMM) else 0, screen.margins[0]


def _cursor(
    screen: EmulatorScreen, x: int, y: int, *, main: bool = False, origin: tuple[int, int] = (0, 0)
) -> Iterable[str]:
    """Move the cursor to column `x`, which may be past the last one, and row `y`.

    The character to the left is written again in two cases: the cursor is past the last column, so
    that the next character goes to the next row; or it equals the last character printed, since a
    later REP repeats what was written last.
    """
    left, top = origin
    cells = screen.cells(y, main=main) if y < screen.rows else []
    cells += [BLANK] * (x + 1 - len(cells))
    before = x - 1
    if before > 0 and not cells[before].data:
        before -= 1
    wraps = x >= screen.cols
    # If the cursor is within a wide character, writing a character cannot end at the cursor.
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
    """Turn an empty stack of kitty's keyboard flags into `stack`."""
    first, *rest = stack
    return (key_flags(first) if first else "") + "".join(f"\x1b[>{number}u" for number in rest)


def key_flags(number: int) -> str:
    """Set the newest entry of kitty's stack of keyboard flags."""
    return f"\x1b[={number}u"


def other_keys_level(number: int) -> str:
    """Set the level of xterm's modifyOtherKeys."""
    return f"\x1b[>4;{number}m"
