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
from acpterm.acp.terminal_updates import ExitInfo
from acpterm.client.endpoint import Endpoint, Response
from acpterm.client.update import SessionKey
from acpterm.jsonrpc import RpcError

READ_METHOD: Final = "_acpterm/terminal/read"
# Bytes asked for at a time, and at the end; seconds between; milliseconds that an answer may wait.
CHUNK_BYTES: Final = 256 * 1024
TOTAL_BYTES_MAX: Final = 1024 * 1024
PAUSE_S: Final = 0.2
_WAIT: Final = 60_000


class _Part(Wire):
    """What is used of the answer to a read."""

    data: str
    position: int
    lost: int
    exit_status: TerminalExitStatus | None = None


_parts: Final = msgspec.json.Decoder(_Part)
_ends: Final = msgspec.json.Decoder(WaitForTerminalExitResponse)


class OutputPoller:
    """Follows one terminal. `take` is given its output, and how much of it is missing before it.

    `room` is waited for before more is asked for.
    """

    def __init__(
        self,
        host: Endpoint,
        terminal: SessionKey,
        take: Callable[[bytes, int], None],
        ended: Callable[[ExitInfo], None],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        self._host = host
        self._session, self._terminal = terminal
        self._on_output = take
        self._on_exit = ended
        self._drain = room
        self._position = 0
        self._expedited = trio.Event()
        self._called = False
        self.done: Final = trio.Event()
        """Set when the end has been told, or nothing more can come."""

    async def run(self) -> None:
        """Follow until the end; when it is cancelled or the host is gone, no further."""
        try:
            while not self.done.is_set():
                await self._drain()
                part = _parts.decode(
                    await self._host.request(READ_METHOD, self._since(CHUNK_BYTES, _WAIT))
                )
                news = self._add(part)
                if part.exit_status is None:
                    with trio.move_on_after(PAUSE_S):
                        await self._expedited.wait()
                elif not news:
                    self._end(ExitInfo(part.exit_status.exit_code, part.exit_status.signal))
        except (RpcError, msgspec.DecodeError):
            # It was released, and what `last_call` asked for comes; or else nothing comes any more.
            if not self._called:
                self._end(ExitInfo(None, None))

    def expedite(self) -> None:
        """Have no more pauses: somebody waits for the end."""
        self._expedited.set()

    def final_read(self) -> None:
        """Ask for the rest and the end, before a release that is about to be passed on."""
        self.expedite()
        if self.done.is_set() or self._called:
            return
        self._called = True
        ends: list[ExitInfo] = []

        def rest(answer: Response) -> None:
            if not isinstance(answer, RpcError):
                with contextlib.suppress(msgspec.DecodeError):
                    self._add(_parts.decode(answer))
            both()

        def how(answer: Response) -> None:
            # An end that is known already is answered before what has to be read.
            end = ExitInfo(None, None)
            if not isinstance(answer, RpcError):
                with contextlib.suppress(msgspec.DecodeError):
                    status = _ends.decode(answer)
                    end = ExitInfo(status.exit_code, status.signal)
            ends.append(end)
            both()

        due = 2

        def both() -> None:
            nonlocal due
            due -= 1
            if not due:
                self._end(ends[0])

        self._host.call(READ_METHOD, self._since(TOTAL_BYTES_MAX, 0), rest)
        which = TerminalRequest(self._session, self._terminal)
        self._host.call("terminal/wait_for_exit", which, how)

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
            self._on_output(news, lost)
        return bool(news)

    def _end(self, end: ExitInfo) -> None:
        if not self.done.is_set():
            self.done.set()
            self._on_exit(end)
