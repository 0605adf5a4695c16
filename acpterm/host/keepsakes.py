"""Released terminals that a tool call shows: the person can read them on (ACP v1, "Releasing").

Bounded in number and in bytes of what they hold; the oldest go first.
"""

from collections import OrderedDict
from typing import Final

from acpterm.terminal import Terminal


class Keepsakes:
    """The released terminals of one daemon that stay readable."""

    def __init__(self, *, number: int, size: int) -> None:
        self._number: Final = number
        self._size: Final = size
        self._kept: OrderedDict[str, Terminal] = OrderedDict()

    def keep(self, terminal: Terminal) -> None:
        """Keep one more, and let go of the oldest that there is no more room for."""
        # What the agent read of it last would be held a second time, and not be counted.
        terminal.text.forget()
        self._kept[terminal.id] = terminal
        while self._kept and (len(self._kept) > self._number or self._held() > self._size):
            self._kept.popitem(last=False)

    def get(self, identifier: str) -> Terminal | None:
        """Give the one of this id, if it is kept."""
        return self._kept.get(identifier)

    def __len__(self) -> int:
        return len(self._kept)

    def _held(self) -> int:
        return sum(terminal.held for terminal in self._kept.values())
