"""An in-memory store of state."""

from collections.abc import Sequence

from acpterm.keeper.reports import FoundEntry


class MemoryStore:
    """A store in memory instead of in a keeper, which also records the calls made to it."""

    def __init__(self) -> None:
        self.entries: dict[str, FoundEntry] = {}
        self.calls: list[tuple[object, ...]] = []

    def put(self, key: str, value: bytes, fds: Sequence[int] = ()) -> None:
        self.calls.append(("put", key, value))
        self.entries[key] = FoundEntry(value, tuple(fds))

    def delete(self, key: str) -> None:
        self.calls.append(("delete", key))
        self.entries.pop(key, None)
