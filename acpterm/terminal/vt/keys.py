"""Sequences that say how a keyboard reports: kitty's keyboard protocol, xterm's modifyOtherKeys.

Kitty's protocol has a stack of flags for each screen, main and alternate, of `DEPTH` entries.
"""

from __future__ import annotations

from typing import Final

DEPTH: Final = 8
# Whatever a terminal had on its stack, of this screen.
NO_FLAGS: Final = f"\x1b[<{DEPTH + 1}u"
NO_LEVEL: Final = "\x1b[>4m"


def pushed(stack: tuple[int, ...]) -> str:
    """Return what pushes a stack in a terminal whose own has been emptied (`NO_FLAGS`)."""
    first, *rest = stack
    return (flags(first) if first else "") + "".join(f"\x1b[>{number}u" for number in rest)


def flags(number: int) -> str:
    """Return what sets the flags that are in force; nothing is pushed."""
    return f"\x1b[={number}u"


def level(number: int) -> str:
    """Return what sets the level of modifyOtherKeys."""
    return f"\x1b[>4;{number}m"
