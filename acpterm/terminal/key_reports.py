"""How a program has asked to be told of keys: kitty's keyboard protocol, xterm's modifyOtherKeys.

The emulator acts on none of it: a viewer's terminal is told, since it is the keyboard.

Rules of the kitty protocol (its "progressive enhancement"):

- Each screen, main and alternate, has a stack of its own, of at most `DEPTH` entries; the last one
  counts. A push too many takes the first one away. There always is one: popped, it is 0 again.
- The main screen's is kept while the alternate one is shown, whose own is forgotten at its end.
"""

from __future__ import annotations

from typing import Final

DEPTH: Final = 8
_FLAGS: Final = 31
_LEVELS: Final = range(4)
# Whatever a terminal had on its stack, of this screen.
NO_FLAGS: Final = f"\x1b[<{DEPTH + 1}u"
NO_LEVEL: Final = "\x1b[>4m"


class KeyReports:
    """What is in force. `level` is that of modifyOtherKeys, 0 for none."""

    __slots__ = ("_alternate", "_main", "level")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Be as new (RIS)."""
        self._main: list[int] = [0]
        self._alternate: list[int] | None = None
        self.level = 0

    def switch(self, *, alternate: bool) -> None:
        """Have the stack of the other screen count."""
        self._alternate = [0] if alternate else None

    @property
    def flags(self) -> int:
        """Kitty's flags that are in force on the screen that is shown, 0 to 31."""
        return (self._alternate or self._main)[-1]

    @property
    def stacks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The stack of the main screen, and that of the alternate one: empty if it is not shown."""
        return tuple(self._main), tuple(self._alternate or ())

    def do(self, parameters: str, final: str) -> None:
        """Do a control sequence, if it is about keys; its first parameter has a private marker."""
        marker, *numbers = parameters[0], *(int(n or 0) for n in parameters[1:].split(";"))
        if final == "u":
            self._flag(marker, numbers[0], numbers[1] if len(numbers) > 1 else 0)
        elif marker == ">" and final in "mn" and numbers[0] in (0, 4):
            # Without a level, or a number at all, and with the other final, it is off.
            level = numbers[1] if final == "m" and len(numbers) > 1 else 0
            self.level = level if level in _LEVELS else 0

    def _flag(self, marker: str, number: int, how: int) -> None:
        stack, flags = self._alternate or self._main, number & _FLAGS
        if marker == ">":
            stack.append(flags)
            del stack[:-DEPTH]
        elif marker == "<":
            del stack[-max(1, number) :]
            stack[:] = stack or [0]
        elif how in (0, 1):
            stack[-1] = flags
        elif how == 2:
            stack[-1] |= flags
        elif how == 3:
            stack[-1] &= ~flags


def pushed(stack: tuple[int, ...]) -> str:
    """Say a stack to a terminal whose own has been emptied (`NO_FLAGS`)."""
    first, *rest = stack
    return (flagged(first) if first else "") + "".join(f"\x1b[>{flags}u" for flags in rest)


def flagged(flags: int) -> str:
    """Say the flags that are in force; nothing is pushed."""
    return f"\x1b[={flags}u"


def levelled(level: int) -> str:
    """Say a level of modifyOtherKeys."""
    return f"\x1b[>4;{level}m"
