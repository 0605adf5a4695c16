"""The wire, written down: each message on a line of its own, when it was and which way it went.

A line is `{"t": SECONDS, "dir": "agent->client", "msg": …}`; what is no JSON is a string in `text`
instead of `msg`. The file is for this user alone, since what agents and editors say to each other
may hold secrets. Writing is in a thread: a slow disk slows nobody, up to what the outbox holds.
"""

import contextlib
import os
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import msgspec
import trio
from msgspec import Raw, UnsetType

from acpterm.jsonrpc import LineSplitter
from acpterm.runtime.send_queue import SendQueue
from acpterm.runtime.stdio import FileStream
from acpterm.runtime.threads import run_blocking

_CLOSE_TIMEOUT_S: Final = 5.0


class LogError(Exception):
    """The log cannot be written; the message says why."""


class _Line(msgspec.Struct, omit_defaults=True):
    t: float
    dir: str
    msg: Raw | UnsetType = msgspec.UNSET
    text: str | UnsetType = msgspec.UNSET


_encoder: Final = msgspec.json.Encoder()
_any: Final = msgspec.json.Decoder(Raw)


class WireLog:
    """A log that is open. Without a file it does nothing."""

    def __init__(self, outbox: SendQueue | None) -> None:
        self._queue = outbox
        self._begin = time.monotonic()

    def write(self, direction: str, line: bytes) -> None:
        """Note a message, which is a line without its end. Never waits."""
        if self._queue is None:
            return
        entry = _Line(round(time.monotonic() - self._begin, 3), direction)
        try:
            entry.msg = _any.decode(line)
            # Strings were skipped there, and may be anything.
            line.decode()
            data = _encoder.encode(entry)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            entry.msg, entry.text = msgspec.UNSET, line.decode(errors="replace")
            data = _encoder.encode(entry)
        self._queue.put(data.replace(b"\n", b" ") + b"\n")

    async def drain(self) -> None:
        """Wait until not too much waits to be written."""
        if self._queue is not None:
            await self._queue.drain()


@asynccontextmanager
async def open_log(path: str | None) -> AsyncIterator[WireLog]:
    """Have a log for as long as the block lasts, in a file that begins anew. Raises `LogError`.

    None is a log that nobody keeps.
    """
    if path is None:
        yield WireLog(None)
        return
    try:
        fd = await run_blocking(partial(_open, path))
    except OSError as error:
        raise LogError(f"the log {path!r} cannot be written: {error.strerror}") from error
    outbox = SendQueue(FileStream(fd))
    async with trio.open_nursery() as nursery:
        written = trio.Event()
        nursery.start_soon(_write, outbox, path, written)
        try:
            yield WireLog(outbox)
        finally:
            outbox.close()
            with trio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await written.wait()
            nursery.cancel_scope.cancel()
            os.close(fd)


def _open(path: str) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    # One that was there may be for others; what is no file, or somebody else's, stays as it is.
    if stat.S_ISREG(os.fstat(fd).st_mode):
        with contextlib.suppress(PermissionError):
            os.fchmod(fd, 0o600)
    return fd


async def _write(outbox: SendQueue, path: str, written: trio.Event) -> None:
    try:
        await outbox.run()
    except trio.BrokenResourceError as error:
        os.write(2, f"acpterm: the log {path!r} can no longer be written: {error}\n".encode())
    finally:
        written.set()


class LoggedStream(trio.abc.Stream):
    """A stream whose lines are noted, in both directions. `directions`: sent, received."""

    def __init__(self, stream: trio.abc.Stream, log: WireLog, directions: tuple[str, str]) -> None:
        self._stream = stream
        self._log = log
        self._sent, self._received = directions
        self._sending, self._receiving = LineSplitter(), LineSplitter()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send, and note."""
        self._record(self._sending, self._sent, data)
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive, and note."""
        await self._log.drain()
        data = await self._stream.receive_some(max_bytes)
        self._record(self._receiving, self._received, data)
        return data

    async def wait_send_all_might_not_block(self) -> None:
        """As the stream does."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """As the stream does."""
        await self._stream.aclose()

    def _record(
        self, splitter: LineSplitter, direction: str, data: bytes | bytearray | memoryview
    ) -> None:
        for line in splitter.feed(data):
            if isinstance(line, bytes):
                self._log.write(direction, line)
