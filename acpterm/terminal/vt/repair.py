"""Repair of a screen that libghostty-vt cannot encode in a snapshot.

When a terminal becomes narrower and does not rewrap its lines (on the alternate screen, or without
DECAWM), a wide character may be cut in two. libghostty-vt then keeps the left half in the last
column, but its encoder refuses the whole screen. `repair` overwrites such halves with blanks. The
cursor stays where it is, but a pending wrap is lost: the next character overwrites the last column
instead of going to the next row.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_NARROW, _WIDE, _TAIL, _HEAD = range(4)
_DECOM: Final = 6
# ANSI modes have the highest bit of 16 set.
_IRM: Final = 1 << 15 | 4
_LEGACY_ALTERNATE: Final = 47
_ALTERNATE: Final = 1


def repair(ffi: Any, lib: Any, terminal: Any) -> None:
    _erase_halves(ffi, lib, terminal)
    key = lib.GHOSTTY_TERMINAL_DATA_ACTIVE_SCREEN
    is_alternate = _get(ffi, lib, terminal, key, "GhosttyTerminalScreen") == _ALTERNATE
    mode = _mode(ffi, lib, terminal, _LEGACY_ALTERNATE)
    _write(lib, terminal, b"\x1b[?47l" if is_alternate else b"\x1b[?47h")
    _erase_halves(ffi, lib, terminal)
    _write(lib, terminal, b"\x1b[?47h" if is_alternate else b"\x1b[?47l")
    lib.ghostty_terminal_set(terminal, lib.GHOSTTY_TERMINAL_OPT_MODE, mode)


def _erase_halves(ffi: Any, lib: Any, terminal: Any) -> None:
    # Erase the rows that have scrolled off and that the library still keeps: they may have halves
    # too.
    _write(lib, terminal, b"\x1b[3J")
    halves = [(x, y) for y, row in enumerate(_rows(ffi, lib, terminal)) for x in _halves(row)]
    if not halves:
        return
    x = _get(ffi, lib, terminal, lib.GHOSTTY_TERMINAL_DATA_CURSOR_X, "uint16_t")
    y = _get(ffi, lib, terminal, lib.GHOSTTY_TERMINAL_DATA_CURSOR_Y, "uint16_t")
    # Write to the screen, and not to a status line (DECSASD).
    _write(lib, terminal, b"\x1b[0$}")
    # Unlike escape sequences, setting modes through the library does not move the cursor.
    modes = [_switch_off(ffi, lib, terminal, mode) for mode in (_DECOM, _IRM)]
    for column, row in [*halves, (x, y)]:
        _write(lib, terminal, b"\x1b[%d;%dH" % (row + 1, column + 1))
        if (column, row) in halves:
            # Write a blank instead of erasing, since an erasure spares protected cells.
            _write(lib, terminal, b" ")
    for mode in modes:
        lib.ghostty_terminal_set(terminal, lib.GHOSTTY_TERMINAL_OPT_MODE, mode)


def _switch_off(ffi: Any, lib: Any, terminal: Any, number: int) -> Any:
    """Reset a mode; return its old setting for `ghostty_terminal_set`."""
    before = _mode(ffi, lib, terminal, number)
    off = ffi.new("GhosttyTerminalModeConfig *", (number, False))
    lib.ghostty_terminal_set(terminal, lib.GHOSTTY_TERMINAL_OPT_MODE, off)
    return before


def _mode(ffi: Any, lib: Any, terminal: Any, number: int) -> Any:
    mode = ffi.new("GhosttyTerminalModeConfig *", (number, False))
    lib.ghostty_terminal_get(terminal, lib.GHOSTTY_TERMINAL_DATA_MODE, mode)
    return mode


def _rows(ffi: Any, lib: Any, terminal: Any) -> Iterator[list[int]]:
    """Yield the widths of the cells of each row; none if the library lacks memory."""
    state, rows = ffi.new("GhosttyRenderState *"), ffi.new("GhosttyRenderStateRowIterator *")
    view = ffi.new("GhosttyCellsView *")
    if lib.ghostty_render_state_new(ffi.NULL, state):
        return
    try:
        if lib.ghostty_render_state_row_iterator_new(ffi.NULL, rows):
            return
        lib.ghostty_render_state_update(state[0], terminal)
        lib.ghostty_render_state_get(state[0], lib.GHOSTTY_RENDER_STATE_DATA_ROW_ITERATOR, rows)
        while lib.ghostty_render_state_row_iterator_next(rows[0]):
            lib.ghostty_render_state_row_get(
                rows[0], lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS_RAW, view
            )
            words = struct.unpack(f"<{view.len}Q", ffi.buffer(view.ptr, 8 * view.len))
            yield [word >> 42 & 3 for word in words]
        lib.ghostty_render_state_row_iterator_free(rows[0])
    finally:
        lib.ghostty_render_state_free(state[0])


def _halves(widths: list[int]) -> Iterator[int]:
    for x, width in enumerate(widths):
        after = widths[x + 1] if x + 1 < len(widths) else _NARROW
        before = widths[x - 1] if x else _NARROW
        if (
            (width == _WIDE and after != _TAIL)
            or (width == _TAIL and before != _WIDE)
            or (width == _HEAD)
        ):
            yield x


def _get(ffi: Any, lib: Any, terminal: Any, key: int, kind: str) -> int:
    out = ffi.new(f"{kind} *")
    lib.ghostty_terminal_get(terminal, key, out)
    return int(out[0])


def _write(lib: Any, terminal: Any, data: bytes) -> None:
    lib.ghostty_terminal_vt_write(terminal, data, len(data))
