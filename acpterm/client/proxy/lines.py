"""Reads the lines of the editor or the agent from a stream, and drops lines that are too long."""

from typing import Final

import structlog
import trio

from acpterm.jsonrpc import LineSplitter, Oversized

_CHUNK: Final = 64 * 1024

_log = structlog.get_logger("acpterm.lines")


class LineReader:
    """Reads lines from `stream`, each of at most `max_line` bytes.

    `peer` is what log messages call the sender.
    """

    def __init__(self, stream: trio.abc.ReceiveStream, peer: str, max_line: int) -> None:
        self._stream = stream
        self._peer = peer
        self._splitter = LineSplitter(max_line)

    async def read(self) -> list[bytes] | None:
        """Wait for the next bytes; return the lines that they complete.

        At the end of the stream, return None. If the last line has no newline, return that line
        first, and None at the next call. A line over the limit is dropped, and this is logged.
        Cancellation loses no data.
        """
        try:
            data = await self._stream.receive_some(_CHUNK)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None
        if not data:
            # If the peer exited abruptly, the last line lacks its newline: return the line anyway.
            rest = self._splitter.close()
            return [rest] if rest else None
        lines = []
        for line in self._splitter.feed(data):
            if isinstance(line, Oversized):
                _log.error("message too long, dropped", peer=self._peer, bytes=line.size)
            else:
                lines.append(line)
        return lines
