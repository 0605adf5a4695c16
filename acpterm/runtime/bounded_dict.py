"""A dict that cannot grow without bound."""

from collections import OrderedDict
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """A dict of at most `max_entries` items; beyond that, the key added first is removed."""

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries: Final = max_entries

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self._max_entries:
            self.popitem(last=False)
