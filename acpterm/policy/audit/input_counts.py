"""Counts the input to terminals, so that typing does not flood the audit log.

The bytes that one side types into a terminal within `INTERVAL_S` seconds become one entry. It is
due when the interval ends, and before any other entry of the same terminal.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

INTERVAL_S: Final = 1.0
_COUNTS_MAX: Final = 1000


class Typed(NamedTuple):
    """The input of one interval."""

    started: float
    """When the first byte was typed, on the monotonic clock."""
    at: float
    """The same moment in seconds since 1970."""
    fields: dict[str, Any]
    """The fields of the entry."""


class InputCounts:
    """The input that has no entry yet, by terminal and by who typed it."""

    def __init__(self) -> None:
        self._typed: dict[tuple[object, object], Typed] = {}

    @property
    def due_at(self) -> float | None:
        """When the next entry is due, on the monotonic clock; None if there is none."""
        return next((typed.started + INTERVAL_S for typed in self._typed.values()), None)

    def add(self, fields: Mapping[str, Any], now: float, at: float) -> list[Typed]:
        """Count the input that `fields` describe; return what is due.

        `now` is the time on the monotonic clock, and `at` is in seconds since 1970.
        """
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
        """Remove and return the input whose interval has ended."""
        # The order of the dict is that of the intervals' starts.
        keys = []
        for key, typed in self._typed.items():
            if typed.started + INTERVAL_S > now:
                break
            keys.append(key)
        return [self._typed.pop(key) for key in keys]

    def take_of(self, terminal: object) -> list[Typed]:
        """Remove and return the input to a terminal."""
        keys = [key for key in self._typed if key[0] == terminal] if self._typed else []
        return [self._typed.pop(key) for key in keys]

    def take_all(self) -> list[Typed]:
        """Remove and return all input."""
        typed, self._typed = self._typed, {}
        return list(typed.values())
