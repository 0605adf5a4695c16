"""The entries that a worker stores in the keeper for the next worker, by key.

An *entry* has a value and descriptors. The value is bytes, which the keeper does not interpret.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class HeldEntry:
    """A value and descriptors, which it owns."""

    __slots__ = ("_fds", "value")

    def __init__(self, value: bytes, fds: Sequence[int]) -> None:
        self.value = value
        self._fds: list[int] | None = list(fds)

    def descriptors(self) -> Sequence[int] | None:
        """Return the descriptors; None once the entry has been replaced or deleted."""
        return self._fds

    def close(self) -> None:
        fds, self._fds = self._fds, None
        for fd in fds or ():
            os.close(fd)


class EntryStore:
    """All entries that a worker stores for the next worker, by key."""

    def __init__(self) -> None:
        self.entries: dict[str, HeldEntry] = {}

    def put(self, key: str, value: bytes, fds: Sequence[int]) -> None:
        """Store an entry, replacing any of that key. Takes ownership of `fds`."""
        self.delete(key)
        self.entries[key] = HeldEntry(value, fds)

    def delete(self, key: str) -> None:
        entry = self.entries.pop(key, None)
        if entry is not None:
            entry.close()
