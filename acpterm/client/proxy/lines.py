"""Lines out of a stream, a read at a time."""

from typing import Final

import structlog
import trio

from acpterm.jsonrpc import LineSplitter, Oversized

_CHUNK: Final = 64 * 1024

_log = structlog.get_logger("acpterm.lines")


class Lines:
    """The lines that come from a stream. `whom` is what a log calls the other end."""

    def __init__(self, stream: trio.abc.ReceiveStream, whom: str, max_line: int) -> None:
        self._stream = stream
        self._whom = whom
        self._splitter = LineSplitter(max_line)

    async def read(self) -> list[bytes] | None:
        """Wait for the next bytes; give the lines that they finish, None when there is no more.

        A line over the limit is left out, and logged. Cancelled, it has lost nothing.
        """
        try:
            data = await self._stream.receive_some(_CHUNK)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None
        if not data:
            # What has no end is passed on with one: somebody may have been in a hurry to go.
            rest = self._splitter.close()
            return [rest] if rest else None
        lines = []
        for line in self._splitter.feed(data):
            if isinstance(line, Oversized):
                _log.error("a message is too long and left out", of=self._whom, bytes=line.size)
            else:
                lines.append(line)
        return lines
