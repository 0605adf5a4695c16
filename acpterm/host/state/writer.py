"""Writes changed records to the store: once per turn of the loop, and before each response.

States of a key: *clean*, or *dirty* since `changed` or `removed` was called for it. `flush` puts or
deletes the dirty keys in the order in which they became dirty, and encodes each record once,
however often it changed. A connection flushes before it sends a response; `run` flushes all other
changes.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import structlog
import trio

from acpterm.host.state.store import StateStore

_log = structlog.get_logger("acpterm.state")

Encode: TypeAlias = Callable[[], bytes]


class StateWriter:
    """Writes records of this worker to the keeper's store."""

    def __init__(self, store: StateStore) -> None:
        self._store: Final = store
        self._dirty: dict[str, Encode | None] = {}
        self._wakeup = trio.Event()

    def changed(self, key: str, encode: Encode) -> None:
        """Mark a record as changed: the next flush calls `encode` and stores the result."""
        self._dirty[key] = encode
        self._wakeup.set()

    def removed(self, key: str) -> None:
        """Mark a record as removed: the next flush deletes it."""
        self._dirty[key] = None
        self._wakeup.set()

    def discard(self, key: str) -> None:
        """Drop a pending change of `key`, whose record is deleted in another way."""
        self._dirty.pop(key, None)

    def flush(self) -> None:
        """Store and delete what has changed. Never raises: errors are logged."""
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
        """Flush after each turn of the loop in which a record has changed, until cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            self.flush()
