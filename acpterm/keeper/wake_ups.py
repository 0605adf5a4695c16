"""The wake-ups between a worker and its keeper, on trio: one event descriptor for each direction.

A wake-up is an event without content: it reports new output to the worker, or free space in a ring
to the keeper. To request one for new output, `arm` sets the ring's header word `ARMED`. At the next
output the keeper clears the word and sends a wake-up. One may stand for several rings, so
`report_forever` then checks the header of every ring that was armed.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from acpterm.keeper.ring_file import ARMED

# Writing this to an eventfd adds 1 to its counter.
_ONE: Final = (1).to_bytes(8, sys.byteorder)


class WakeUps:
    """Owns the descriptors once `open` was called."""

    def __init__(self) -> None:
        self._from_keeper: int | None = None
        self._to_keeper: int | None = None
        self._armed: Final[dict[str, memoryview]] = {}

    def open(self, from_keeper: int, to_keeper: int) -> None:
        """Take two descriptors: the worker waits on one, and writes to the other."""
        self._from_keeper, self._to_keeper = from_keeper, to_keeper

    def close(self) -> None:
        """Close the descriptors. `report_forever` must not be running."""
        for fd in {self._from_keeper, self._to_keeper}:
            if fd is not None:
                os.close(fd)
        self._from_keeper = self._to_keeper = None

    def arm(self, name: str, header: memoryview) -> None:
        """Request one wake-up at the next output of a terminal, with its ring's header."""
        self._armed[name] = header
        header[ARMED] = 1

    def disarm(self, name: str) -> None:
        self._armed.pop(name, None)

    def kick(self) -> None:
        """Make the keeper check whether rings that were full have free space."""
        if self._to_keeper is not None:
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(self._to_keeper, _ONE)

    async def report_forever(self, wake: Callable[[str], None]) -> None:
        """Call `wake` with a terminal's name at its first output after `arm`."""
        assert self._from_keeper is not None  # noqa: S101  `open` was called before
        while True:
            await trio.lowlevel.wait_readable(self._from_keeper)
            with suppress(BlockingIOError):
                os.read(self._from_keeper, 4096)
            # No variable for the header: it would hold the last ring until the next wake-up.
            for name in tuple(self._armed):
                # An earlier call of `wake` may have disarmed this terminal and unmapped its ring.
                if name in self._armed and not self._armed[name][ARMED]:
                    del self._armed[name]
                    wake(name)
