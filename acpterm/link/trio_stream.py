"""`TrioStream`: a stream of trio as one of anyio, for an `Endpoint`."""

from typing import Final

import anyio
import trio
from anyio.abc import ByteStream


class TrioStream(ByteStream):
    """Sends and receives on `stream`."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream: Final = stream

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Receive up to `max_bytes`."""
        try:
            data = await self._stream.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise anyio.BrokenResourceError from error
        if not data:
            raise anyio.EndOfStream
        return bytes(data)

    async def send(self, item: bytes) -> None:
        """Send all of `item`."""
        try:
            await self._stream.send_all(item)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        """Close the stream: not each stream of trio can be closed in one direction."""
        await self._stream.aclose()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()
