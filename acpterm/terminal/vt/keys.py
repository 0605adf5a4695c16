"""Sequences that set how keys are reported: kitty's keyboard protocol, xterm's modifyOtherKeys.

Kitty's protocol has a stack of flags of `DEPTH` entries for each screen, main and alternate.
"""

from __future__ import annotations

from typing import Final

DEPTH: Final = 8
# Empties the stack of the current screen, whatever is on it.
NO_FLAGS: Final = f"\x1b[<{DEPTH + 1}u"
NO_LEVEL: Final = "\x1b[>4m"


def pushed(stack: tuple[int, ...]) -> str:
    """Return sequences that build a stack in a terminal with an empty one (`NO_FLAGS`)."""
    first, *rest = stack
    return (flags(first) if first else "") + "".join(f"\x1b[>{number}u" for number in rest)


def flags(number: int) -> str:
    """Return the sequence that sets the current flags without pushing any."""
    return f"\x1b[={number}u"


def level(number: int) -> str:
    """Return the sequence that sets the level of modifyOtherKeys."""
    return f"\x1b[>4;{number}m"
