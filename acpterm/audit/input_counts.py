"""Counts the bytes typed into terminals, so that typing does not flood the audit log.

All bytes that one side (agent, user or share) types into a terminal within `INTERVAL_S` seconds
become one entry. The entry is due when the interval ends, or earlier if another entry of the same
terminal is recorded.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

INTERVAL_S: Final = 1.0
_COUNTS_MAX: Final = 1000


class Typed(NamedTuple):
    """What one side (agent, user or share) has typed into one terminal in one interval."""

    started: float
    """The time of the first byte on the monotonic clock, in seconds."""
    at: float
    """The time of the first byte in seconds since 1970."""
    fields: dict[str, Any]
    """The fields of the entry; `bytes` is the number of bytes so far."""


class InputCounts:
    """The counts of typed bytes without an entry yet: one for each terminal and side."""

    def __init__(self) -> None:
        self._typed: dict[tuple[object, object], Typed] = {}

    @property
    def due_at(self) -> float | None:
        """The time on the monotonic clock at which the next entry is due; None if there is none."""
        return next((typed.started + INTERVAL_S for typed in self._typed.values()), None)

    def add(self, fields: Mapping[str, Any], now: float, at: float) -> list[Typed]:
        """Count new input; remove and return the counts that are due, or all if too many."""
        due = self.take_due(now)
        if len(self._typed) >= _COUNTS_MAX:
            due += self.take_all()
        key = fields.get("terminal"), fields.get("by")
        if typed := self._typed.get(key):
            typed.fields["bytes"] = typed.fields.get("bytes", 0) + fields.get("bytes", 0)
        else:
            self._typed[key] = Typed(now, at, dict(fields))
        return due

    def take_due(self, now: float) -> list[Typed]:
        """Remove and return the counts whose interval has ended."""
        # The dict is in the order in which the intervals started.
        keys = []
        for key, typed in self._typed.items():
            if typed.started + INTERVAL_S > now:
                break
            keys.append(key)
        return [self._typed.pop(key) for key in keys]

    def take_of(self, terminal: object) -> list[Typed]:
        """Remove and return the counts of the terminal with the id `terminal`."""
        keys = [key for key in self._typed if key[0] == terminal] if self._typed else []
        return [self._typed.pop(key) for key in keys]

    def take_all(self) -> list[Typed]:
        """Remove and return all counts."""
        typed, self._typed = self._typed, {}
        return list(typed.values())
