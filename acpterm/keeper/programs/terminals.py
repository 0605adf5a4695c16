"""All terminals of a keeper, and what they wait for together."""

from __future__ import annotations

from acpterm.keeper.ring import ARMED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.programs.reading import Reader
    from acpterm.keeper.programs.reaping import Exit
    from acpterm.keeper.programs.terminal import Terminal

# Reading into a little room again and again costs more than to wait for more of it. What the worker
# does not announce, and what stays little, is found after a moment.
_RESUME_FRACTION = 0.25
_STALLED_RETRY_S = 0.05


class Terminals:
    """All terminals by name, and by pid those whose child is not reaped.

    `exited` and `closed` are called once for each terminal that is not forgotten, in this order.
    """

    def __init__(
        self,
        loop: Loop,
        reader: Reader,
        exited: Callable[[Terminal, Exit], None],
        closed: Callable[[Terminal, int], None],
    ) -> None:
        self.loop = loop
        self.reader = reader
        self.exited = exited
        self.closed = closed
        self.by_name: dict[str, Terminal] = {}
        self.by_pid: dict[int, Terminal] = {}
        # Those that were written to, and how often it was looked whether their consumer waits.
        self._written: dict[Terminal, int] = {}
        self._stalled: dict[Terminal, None] = {}
        self._retrying = False

    def written(self, terminal: Terminal) -> None:
        """Wake the consumer of this terminal, if it waits, at the end of the turn."""
        self._written[terminal] = 0

    @property
    def may_miss_a_wait(self) -> bool:
        """Whether a consumer may have begun to wait since it was last looked."""
        return bool(self._written)

    def must_wake(self) -> bool:
        """Disarm consumers that wait for what was written; return whether there was one.

        A consumer that arms in this very moment is seen by the next call.
        """
        wake = False
        for terminal, looks in tuple(self._written.items()):
            ring = terminal.ring
            if ring is not None and ring.header[ARMED]:
                ring.header[ARMED] = 0
                wake = True
            if looks == 0 and ring is not None:
                self._written[terminal] = 1
            else:
                del self._written[terminal]
        return wake

    def stall(self, terminal: Terminal) -> None:
        """Look for room for this terminal until there is."""
        self._stalled[terminal] = None
        self._retry_later()

    def unstall(self, terminal: Terminal) -> None:
        """Undo `stall`. Can be repeated."""
        self._stalled.pop(terminal, None)

    def look_for_room(self) -> None:
        """Go on reading where there is a good deal of room again."""
        for terminal in tuple(self._stalled):
            terminal.resume(_RESUME_FRACTION)

    def _retry_later(self) -> None:
        if self._stalled and not self._retrying:
            self._retrying = True
            self.loop.call_later(_STALLED_RETRY_S, self._look_for_any_room)

    def _look_for_any_room(self) -> None:
        self._retrying = False
        for terminal in tuple(self._stalled):
            terminal.resume(0)
        self._retry_later()
