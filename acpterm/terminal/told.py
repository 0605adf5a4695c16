"""What a viewer's terminal has to be told besides what to draw: how keys report, and so on.

The emulator acts on none of it. A viewer that comes later is told what is on now.
"""

from __future__ import annotations

from typing import Final

from acpterm.terminal.key_reports import KeyReports

_MICE: Final = frozenset({9, 1000, 1002, 1003})
# Application cursor keys, reverse video, blinking cursor, mouse (which, and how it is told), focus,
# bracketed paste. The cursor's visibility (25) is the grid's.
MODES: Final = (1, 5, 12, 9, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 2004)
# pyte's numbers of the modes that painters have to know, without importing it.
IRM: Final = 4
LNM: Final = 20
DECOM: Final = 6 << 5
DECAWM: Final = 7 << 5
DECTCEM: Final = 25 << 5
TITLE_MAX: Final = 256
_SHAPES: Final = range(7)


class Told:
    """Modes, the keypad, how keys are told, the cursor's shape, the title."""

    __slots__ = ("_modes", "keypad", "keys", "shape", "title")

    def __init__(self) -> None:
        # In the order they were set: of the mouse's, the last is the one that counts.
        self._modes: dict[int, None] = {}
        self.keypad = False
        self.keys: Final = KeyReports()
        self.shape = 0
        #: None until the program sets one.
        self.title: str | None = None

    @property
    def modes(self) -> tuple[int, ...]:
        """The private modes that are set, of `MODES`, in the order to set them again."""
        return tuple(self._modes)

    def set_mode(self, number: int, on: bool) -> None:
        """Set or reset a private mode; one that is not of `MODES` is left out."""
        if number == 66:
            self.keypad = on
        elif number in MODES:
            self._modes.pop(number, None)
            if on:
                self._modes[number] = None
            elif number in _MICE:
                # As in xterm, there is one mouse, which each of them turns off.
                for other in _MICE:
                    self._modes.pop(other, None)

    def set_shape(self, shape: int) -> None:
        """Set the cursor's shape (DECSCUSR), 0 to 6; 0 is the viewer's own."""
        if shape in _SHAPES:
            self.shape = shape

    def set_title(self, title: str) -> None:
        """Set the title, at most `TITLE_MAX` characters of it, without what does not print."""
        self.title = "".join(char for char in title if char.isprintable())[:TITLE_MAX]

    def soften(self) -> None:
        """Forget what a soft reset (DECSTR) resets."""
        self._modes.pop(1, None)
        self.keypad = False

    def reset(self) -> None:
        """Forget all but the title (RIS)."""
        self._modes.clear()
        self.keypad = False
        self.keys.reset()
        self.shape = 0
