"""A file, or whatever a descriptor is, as a stream to send to: written to in a thread."""

import trio

from acpterm.runtime import stdio


class FileStream(trio.abc.SendStream):
    """Sends to `fd`, which stays open, and blocking: it may be shared with others."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`. Raises `trio.BrokenResourceError` when that cannot be done."""
        try:
            await stdio.write_all(self._fd, bytes(data))
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def wait_send_all_might_not_block(self) -> None:
        """Return at once."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Do nothing: the descriptor is somebody else's."""
        await trio.lowlevel.checkpoint()
