"""Writes changed records to the keeper's store, before each response that may depend on them.

States of a key: *clean*, or *dirty* once `changed` or `removed` was called for the key. `flush`
stores or deletes the records of the dirty keys, in the order in which they became dirty. However
often a record has changed, it is encoded once. A connection flushes before it sends a response;
`run` flushes all other changes, once per turn of the event loop.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import structlog
import trio

from acpterm.host.state.store import StateStore

_log = structlog.get_logger("acpterm.state")

Encode: TypeAlias = Callable[[], bytes]


class StateWriter:
    def __init__(self, store: StateStore) -> None:
        self._store: Final = store
        self._dirty: dict[str, Encode | None] = {}
        self._wakeup: Final = trio.lowlevel.ParkingLot()

    def changed(self, key: str, encode: Encode) -> None:
        """Store what `encode` returns at the next flush."""
        self._dirty[key] = encode
        self._wakeup.unpark_all()

    def removed(self, key: str) -> None:
        """Delete the record at the next flush."""
        self._dirty[key] = None
        self._wakeup.unpark_all()

    def discard(self, key: str) -> None:
        """Forget a change to a record that the keeper deletes itself."""
        self._dirty.pop(key, None)

    def flush(self) -> None:
        """Store or delete the records of all dirty keys. Never raises: errors are logged."""
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, {}
        for key, encode in dirty.items():
            try:
                if encode is None:
                    self._store.delete(key)
                else:
                    self._store.put(key, encode())
            except Exception as error:  # noqa: BLE001  the response must still be sent
                _log.error("state not stored", key=key.partition("/")[0], exc_info=error)

    async def run(self) -> None:
        """Flush after each turn of the event loop in which a record has changed."""
        while True:
            while not self._dirty:
                await self._wakeup.park()
            self.flush()
