"""One terminal of ours, followed: what it prints from its beginning on, and how it ends.

The host is asked for what came since a position, and answers when there is something; between two
such questions there is a pause, so that a flood is looked at now and then and not in full. What has
left the host's ring meanwhile is counted as lost.

A release makes the id invalid, and agents release at once after the end. So `last_call`, to be made
right before a release is passed on, asks for all that there is and for the end: the host takes
both before the release, and answers them in either order.
"""

import base64
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from acpterm.acp import (
    ReadRequest,
    TerminalExitStatus,
    TerminalRequest,
    WaitForTerminalExitResponse,
)
from acpterm.acp.base import Wire
from acpterm.acp.terminal_updates import End
from acpterm.client.endpoint import Answer, Endpoint
from acpterm.client.update import Key
from acpterm.jsonrpc import RpcError

READ: Final = "_acpterm/terminal/read"
# Bytes asked for at a time, and at the end; seconds between; milliseconds that an answer may wait.
STEP: Final = 256 * 1024
ALL: Final = 1024 * 1024
PAUSE: Final = 0.2
_WAIT: Final = 60_000


class _Part(Wire):
    """What is used of the answer to a read."""

    data: str
    position: int
    lost: int
    exit_status: TerminalExitStatus | None = None


_parts: Final = msgspec.json.Decoder(_Part)
_ends: Final = msgspec.json.Decoder(WaitForTerminalExitResponse)


class Follower:
    """Follows one terminal. `take` is given its output, and how much of it is missing before it.

    `room` is waited for before more is asked for.
    """

    def __init__(
        self,
        host: Endpoint,
        terminal: Key,
        take: Callable[[bytes, int], None],
        ended: Callable[[End], None],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        self._host = host
        self._session, self._terminal = terminal
        self._take = take
        self._ended = ended
        self._room = room
        self._position = 0
        self._hurried = trio.Event()
        self._called = False
        self.done: Final = trio.Event()
        """Set when the end has been told, or nothing more can come."""

    async def run(self) -> None:
        """Follow until the end; when it is cancelled or the host is gone, no further."""
        try:
            while not self.done.is_set():
                await self._room()
                part = _parts.decode(await self._host.request(READ, self._since(STEP, _WAIT)))
                news = self._add(part)
                if part.exit_status is None:
                    with trio.move_on_after(PAUSE):
                        await self._hurried.wait()
                elif not news:
                    self._end(End(part.exit_status.exit_code, part.exit_status.signal))
        except (RpcError, msgspec.DecodeError):
            # It was released, and what `last_call` asked for comes; or else nothing comes any more.
            if not self._called:
                self._end(End(None, None))

    def hurry(self) -> None:
        """Have no more pauses: somebody waits for the end."""
        self._hurried.set()

    def last_call(self) -> None:
        """Ask for the rest and the end, before a release that is about to be passed on."""
        self.hurry()
        if self.done.is_set() or self._called:
            return
        self._called = True
        ends: list[End] = []

        def rest(answer: Answer) -> None:
            if not isinstance(answer, RpcError):
                with contextlib.suppress(msgspec.DecodeError):
                    self._add(_parts.decode(answer))
            both()

        def how(answer: Answer) -> None:
            # An end that is known already is answered before what has to be read.
            end = End(None, None)
            if not isinstance(answer, RpcError):
                with contextlib.suppress(msgspec.DecodeError):
                    status = _ends.decode(answer)
                    end = End(status.exit_code, status.signal)
            ends.append(end)
            both()

        due = 2

        def both() -> None:
            nonlocal due
            due -= 1
            if not due:
                self._end(ends[0])

        self._host.ask(READ, self._since(ALL, 0), rest)
        which = TerminalRequest(self._session, self._terminal)
        self._host.ask("terminal/wait_for_exit", which, how)

    def _since(self, most: int, wait: int) -> ReadRequest:
        return ReadRequest(
            self._session,
            self._terminal,
            self._position,
            max_bytes=most,
            format="raw",
            wait_ms=wait,
        )

    def _add(self, part: _Part) -> bool:
        """Take what is new in a part; whether there was any. Parts may overlap."""
        data = base64.b64decode(part.data)
        begin = part.position - len(data)
        lost = max(0, begin - self._position)
        news = data[max(0, self._position - begin) :]
        self._position = max(self._position, part.position)
        if news or lost:
            self._take(news, lost)
        return bool(news)

    def _end(self, end: End) -> None:
        if not self.done.is_set():
            self.done.set()
            self._ended(end)
