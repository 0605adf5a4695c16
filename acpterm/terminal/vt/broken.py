"""The replacement for the emulator of a terminal whose output has crashed libghostty-vt.

A crash of the library ends the worker. The next worker finds the flag in the ring's header that is
set while the emulator runs (`shared_ring.EmulatorMark`), and does not feed the same bytes again.
From then on, the terminal's screen shows a message, and its program's queries get no replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acpterm.terminal.vt.emulator import Emulator, check_size

if TYPE_CHECKING:
    from acpterm.terminal.vt.emulator import Data
    from acpterm.terminal.vt.screen import EmulatorScreen

MESSAGE: Final = (
    "The terminal emulator failed on this terminal's output.",
    "Its text and its raw output are complete, and its program runs on.",
)


class BrokenEmulator:
    """An `emulator.Emulator` that ignores output and always shows a message."""

    __slots__ = ("_cols", "_rows")

    is_available: Final = True

    def __init__(self, cols: int, rows: int) -> None:
        self._cols = cols
        self._rows = rows

    def feed(self, data: Data) -> None:
        """Ignore the program's next output."""

    def feed_for(self, data: memoryview, _seconds: float) -> int:
        return len(data)

    def feed_simple_for(self, data: bytes, _seconds: float) -> int:
        return len(data)

    def state(self) -> None:
        """Return None: there is no state."""

    def restore(self, _state: bytes) -> bool:
        # Known, since a repaint would change nothing.
        return True

    def resize(self, cols: int, rows: int) -> None:
        self._cols, self._rows = cols, rows

    def screen(self) -> EmulatorScreen:
        check_size(self._cols, self._rows)
        emulator = Emulator(self._cols, self._rows)
        emulator.feed("\r\n".join(MESSAGE).encode())
        return emulator.screen()
