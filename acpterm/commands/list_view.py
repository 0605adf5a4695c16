"""State of the list that `acpterm ls --watch` shows: selection, scroll position and filter.

This module does no I/O: the caller feeds the bytes of typed keys and gets the rows to draw. The
selection is a terminal, not an index, because the list changes while it is shown.
"""

import codecs
import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from acpterm.commands.format import Item, Row

_KEY: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|[\s\S]")
_NAMES: Final = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up",
    "\x1b[B": "down", "\x1bOB": "down", "j": "down",
    "\x1b[5~": "page up", "\x1b[6~": "page down", " ": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "g": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end", "G": "end",
}  # fmt: skip
_ENTER: Final = ("\r", "\n")
_BACKSPACE: Final = ("\x7f", "\b")
_ESCAPE: Final = "\x1b"
_FILTER_MAX: Final = 200


class ListAction(Enum):
    QUIT = auto()
    OPEN = auto()


class VisibleRows(NamedTuple):
    """The rows of the filtered list that fit the window, and their place in that list."""

    rows: list[Row]
    selected: int | None
    """Index in `rows` of the selected row; None if the list is empty."""
    first: int
    """Index in the filtered list of the first of `rows`."""
    total: int


class ListView:
    def __init__(self) -> None:
        self.filter = ""
        """Text that the rows shown contain, ignoring case; "" shows all."""
        self.is_typing_filter = False
        """Whether typed characters change the filter, instead of being commands."""
        self._items: list[Item] = []
        self._selected: str | None = None
        # Indices in the filtered list: of the selected terminal, and of the first visible row.
        self._place = 0
        self._first = 0
        self._height = 1
        # Until then the first row stays selected, and so visible, whatever appears there.
        self._has_moved = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    @property
    def selected(self) -> str | None:
        return self._selected

    @property
    def items(self) -> list[Item]:
        wanted = self.filter.casefold()
        return [one for one in self._items if wanted in "  ".join(one.row).casefold()]

    def update(self, items: Sequence[Item]) -> None:
        self._items = list(items)
        self._settle()

    def feed(self, typed: bytes) -> ListAction | None:
        """Handle typed keys up to the first that requests an action, and return that action."""
        for key in _KEY.findall(self._decoder.decode(typed)):
            if action := self._press(key):
                return action
        return None

    def part(self, height: int) -> VisibleRows:
        """Return at most `height` rows, scrolled so that the selected row is among them."""
        self._height = max(1, height)
        items = self.items
        last = max(0, len(items) - self._height)
        self._first = min(max(self._first, self._place - self._height + 1), self._place, last)
        rows = [item.row for item in items[self._first : self._first + self._height]]
        return VisibleRows(
            rows, self._place - self._first if items else None, self._first, len(items)
        )

    def _press(self, key: str) -> ListAction | None:
        if self.is_typing_filter:
            self._edit(key)
        elif key in "qQ":
            return ListAction.QUIT
        elif key in _ENTER:
            self._has_moved = True
            return ListAction.OPEN if self._selected is not None else None
        elif key == "/":
            self.is_typing_filter = True
        elif key == _ESCAPE:
            self.filter = ""
            self._settle()
        elif name := _NAMES.get(key):
            self._move(name)
        return None

    def _edit(self, key: str) -> None:
        if key in _ENTER:
            self.is_typing_filter = False
        elif key == _ESCAPE:
            self.is_typing_filter, self.filter = False, ""
        elif key in _BACKSPACE:
            self.filter = self.filter[:-1]
        elif key.isprintable() and len(self.filter) < _FILTER_MAX:
            self.filter += key
        elif name := _NAMES.get(key):
            self._move(name)
        self._settle()

    def _move(self, name: str) -> None:
        items = self.items
        steps = {
            "up": -1,
            "down": 1,
            "page up": -self._height,
            "page down": self._height,
            "home": -len(items),
            "end": len(items),
        }
        if items:
            self._place = min(max(0, self._place + steps[name]), len(items) - 1)
            self._selected = items[self._place].id
            self._has_moved = self._place > 0

    def _settle(self) -> None:
        # If the selected terminal is gone, select what is at its place now. Until a key has moved
        # the selection, that is the first row.
        items = self.items
        ids = [item.id for item in items]
        if self._selected in ids and self._has_moved:
            self._place = ids.index(self._selected)
        else:
            self._place = min(self._place, max(0, len(items) - 1))
            self._selected = ids[self._place] if ids else None
