"""Entries that the worker keeps here for its successor: opaque bytes by key, with descriptors."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Entry:
    """One value and the descriptors that belong to it, which are this entry's to close."""

    __slots__ = ("_fds", "value")

    def __init__(self, value: bytes, fds: Sequence[int]) -> None:
        self.value = value
        self._fds: list[int] | None = list(fds)

    def descriptors(self) -> Sequence[int] | None:
        """Return the descriptors; None once the entry was replaced or deleted."""
        return self._fds

    def close(self) -> None:
        """Close the descriptors."""
        fds, self._fds = self._fds, None
        for fd in fds or ():
            os.close(fd)


class Store:
    """All entries by key."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def put(self, key: str, value: bytes, fds: Sequence[int]) -> None:
        """Store an entry, in place of the one of that key. Takes over the descriptors."""
        self.delete(key)
        self.entries[key] = Entry(value, fds)

    def delete(self, key: str) -> None:
        """Drop an entry, if there is one."""
        entry = self.entries.pop(key, None)
        if entry is not None:
            entry.close()
