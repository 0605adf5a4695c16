"""What has changed, put into the store once a turn, and before any answer that tells of it.

States of a key: *clean*, or *dirty* since `changed` or `removed` named it; `flush` puts or deletes
what is dirty, in the order in which it became so, and encodes each record once however often it
changed. Who sends an answer flushes first; `run` flushes what nobody answers.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import structlog
import trio

from acpterm.host.state.store import StateStore

_log = structlog.get_logger("acpterm.state")

Encode: TypeAlias = Callable[[], bytes]


class StateWriter:
    """Writes records of this worker into the keeper's store."""

    def __init__(self, store: StateStore) -> None:
        self._store: Final = store
        self._dirty: dict[str, Encode | None] = {}
        self._wakeup = trio.Event()

    def changed(self, key: str, encode: Encode) -> None:
        """Have the record of `key` put with the next flush: what `encode` returns then."""
        self._dirty[key] = encode
        self._wakeup.set()

    def removed(self, key: str) -> None:
        """Have the record of `key` deleted with the next flush."""
        self._dirty[key] = None
        self._wakeup.set()

    def discard(self, key: str) -> None:
        """Put no pending change of `key`: its record is deleted in another way."""
        self._dirty.pop(key, None)

    def flush(self) -> None:
        """Put and delete what has changed. Never raises: what cannot be put is logged."""
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, {}
        for key, encode in dirty.items():
            try:
                if encode is None:
                    self._store.delete(key)
                else:
                    self._store.put(key, encode())
            except Exception as error:  # noqa: BLE001  an answer is sent all the same
                _log.error("state not stored", key=key.partition("/")[0], exc_info=error)

    async def run(self) -> None:
        """Flush each turn in which something has changed, until cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            self.flush()
