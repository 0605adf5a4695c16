"""What is typed into one terminal: in order, and without ever holding up who types.

States: *idle*; *behind*, while the program does not read as fast as is typed: then the rest waits
here, at most `MOST` bytes of it, and a task that `type` starts types it bit by bit. What was typed
first comes first, whoever typed it. When the terminal closes, what is left is dropped.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from acpterm.pty.master import Master

MOST: Final = 16 * 1024 * 1024


class InputFullError(Exception):
    """The program does not read what was typed before; nothing of this was typed."""


class Keyboard:
    """The input of the terminal of `master`; `start` starts a task beside its reader."""

    def __init__(
        self, master: Master, start: Callable[[Callable[[], Awaitable[None]]], None]
    ) -> None:
        self._master = master
        self._start = start
        self._rest = bytearray()
        self._typed = 0
        self._news = trio.lowlevel.ParkingLot()

    def type(self, data: bytes) -> int:
        """Type `data`, now or as soon as there is room: what `wait` is to wait for.

        Raises `trio.ClosedResourceError` when the terminal is closed, `InputFullError` when too
        much is waiting already.
        """
        if self._master.closed:
            raise trio.ClosedResourceError
        if len(self._rest) + len(data) > MOST:
            raise InputFullError
        idle = not self._rest
        self._rest += data
        if idle:
            self._type_some()
            if self._rest:
                self._start(self._type_rest)
        return self._typed + len(self._rest)

    async def wait(self, typed: int) -> None:
        """Wait until the terminal has taken all up to there. Cancelled, it is still typed.

        Raises `trio.ClosedResourceError` when the terminal is closed first.
        """
        while self._typed < typed:
            if self._master.closed:
                raise trio.ClosedResourceError
            await self._news.park()

    def close(self) -> None:
        """Tell those who wait that the terminal is closed."""
        self._rest.clear()
        self._news.unpark_all()

    async def _type_rest(self) -> None:
        try:
            while self._rest:
                await self._master.wait_writable()
                self._type_some()
        except (trio.ClosedResourceError, OSError):
            self.close()

    def _type_some(self) -> None:
        taken = self._master.write(bytes(self._rest[:65536]))
        del self._rest[:taken]
        self._typed += taken
        self._news.unpark_all()
