"""Hyperlinks (OSC 8): what a program has said, kept with the style of what it covers.

A link is its parameters and its address with a semicolon between them, as they were said; none is
the empty string. What is no printable ASCII, or longer than VTE takes, is none.

A link may be two thousand times as long as what it covers, so there are two bounds: of what a
screen holds (`Room`), and of what a row says of it when it is painted (`row_room`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESS_MAX: Final = 2083
LINKS_MAX: Final = 256 * 1024
"""Characters of different links that a screen may hold."""
_PARAMETERS_MAX: Final = 250
_LINK: Final = re.compile(rf"[!-:<-~]{{0,{_PARAMETERS_MAX}}};[!-~]{{1,{ADDRESS_MAX}}}")


class Room:
    """Whether there is room for one more link on a screen."""

    def __init__(self) -> None:
        self._said = 0
        self._full = False

    def take(self, link: str, held: Callable[[], int]) -> bool:
        """Whether a link may be drawn. `held` counts what the screen holds; it is slow.

        It is asked after half as much was said as there is room for, whether that was drawn or not.
        """
        self._said += len(link)
        if self._said > LINKS_MAX:
            kept = held()
            self._full = kept > LINKS_MAX // 2
            self._said = min(kept, LINKS_MAX // 2) + len(link)
        return not self._full


def row_room(columns: int) -> int:
    """Give the characters of links that a row of so many cells says when it is painted."""
    return ADDRESS_MAX + _PARAMETERS_MAX + 8 * columns


def link_of(said: str) -> str:
    """Give the link that a program has begun, from what is behind ``8;`` in the command."""
    return said if _LINK.fullmatch(said) else ""


def linked(link: str) -> str:
    """Begin a link, or end the one before."""
    return f"\x1b]8;{link or ';'}\x1b\\"
