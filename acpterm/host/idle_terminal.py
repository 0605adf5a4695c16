"""Tracks when a terminal that has the limit `idle` was last active.

`limit_monitor` reads this time, and kills the terminal if the time is too long ago.
"""

import time
import weakref
from typing import Final

from acpterm.host.entry import TerminalEntry
from acpterm.host.registry import TerminalRegistry
from acpterm.terminal.status import EndedBy


class IdleTerminal:
    """A terminal that may be idle for `idle_s` seconds. Implements `Watched`."""

    def __init__(self, entry: TerminalEntry, registry: TerminalRegistry, idle_s: float) -> None:
        self.idle_s: Final = idle_s
        # A weak reference, because the monitor refers to this object until the next deadline, which
        # may be long after the terminal was forgotten.
        self._entry: Final = weakref.ref(entry)
        self._registry: Final = registry
        # The start of the program, or of this worker, counts as activity.
        self._last_input = time.monotonic()
        entry.terminal.keyboard.listeners.append(self._record_input)

    @property
    def is_over(self) -> bool:
        """Whether the limit no longer applies: it has ended, or is the user's, or is forgotten."""
        entry = self._entry()
        return (
            entry is None
            or entry.is_users
            or entry.background_end is not None
            or entry.released_at is not None
            or entry.record.killed_by is not None
        )

    def last_activity(self) -> float:
        """Return the time of the last output or input, or of the creation."""
        entry = self._entry()
        if entry is None:
            return self._last_input
        if entry.terminal.is_queued or not entry.terminal.catch_up():
            return time.monotonic()
        return max(self._last_input, entry.terminal.timeline.last or 0.0)

    def expire(self) -> None:
        """Kill the terminal's processes, because of the limit."""
        if (entry := self._entry()) is not None:
            self._registry.kill(entry, EndedBy.IDLE)

    def _record_input(self, data: bytes, echoed: bool) -> None:
        del data, echoed
        self._last_input = time.monotonic()
