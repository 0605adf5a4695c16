"""The wire log (`--log`): a file with one line per message, with its time and direction.

A line is `{"t": SECONDS, "dir": "agent->client", "msg": …}`, with the time since the log was
opened. A message that is not JSON is a string in `text` instead of `msg`. Only this user may read
the file, since messages between agents and editors may contain secrets. A thread writes the file,
so a slow disk delays messages only while the queue of lines to write is full.
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
    """An open wire log, which puts lines into `queue`; without one, nothing is logged."""

    def __init__(self, queue: SendQueue | None) -> None:
        self._queue = queue
        self._start = time.monotonic()

    def write(self, direction: str, line: bytes) -> None:
        """Log a message; `direction` names sender and receiver, such as `agent->client`."""
        if self._queue is None:
            return
        entry = _Line(round(time.monotonic() - self._start, 3), direction)
        try:
            entry.msg = _any.decode(line)
            # Decoding to Raw does not validate strings: check that they are UTF-8.
            line.decode()
            data = _encoder.encode(entry)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            entry.msg, entry.text = msgspec.UNSET, line.decode(errors="replace")
            data = _encoder.encode(entry)
        self._queue.put(data.replace(b"\n", b" ") + b"\n")

    async def drain(self) -> None:
        if self._queue is not None:
            await self._queue.drain()


@asynccontextmanager
async def open_log(path: str | None) -> AsyncIterator[WireLog]:
    """Open a log for the block, in a truncated file, or one that does nothing."""
    if path is None:
        yield WireLog(None)
        return
    try:
        fd = await run_blocking(partial(_open, path))
    except OSError as error:
        raise LogError(f"the log {path!r} cannot be written: {error.strerror}") from error
    queue = SendQueue(FileStream(fd))
    async with trio.open_nursery() as nursery:
        written = trio.Event()
        nursery.start_soon(_write, queue, path, written)
        try:
            yield WireLog(queue)
        finally:
            queue.close()
            with trio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await written.wait()
            nursery.cancel_scope.cancel()
            os.close(fd)


def _open(path: str) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    # An existing file may be readable by other users. The modes of devices and of other users'
    # files are not changed.
    if stat.S_ISREG(os.fstat(fd).st_mode):
        with contextlib.suppress(PermissionError):
            os.fchmod(fd, 0o600)
    return fd


async def _write(queue: SendQueue, path: str, written: trio.Event) -> None:
    try:
        await queue.run()
    except trio.BrokenResourceError as error:
        os.write(2, f"acpterm: the log {path!r} can no longer be written: {error}\n".encode())
    finally:
        written.set()


class LoggedStream(trio.abc.Stream):
    """Logs the lines that are sent and received on `stream`, with a direction for each."""

    def __init__(self, stream: trio.abc.Stream, log: WireLog, directions: tuple[str, str]) -> None:
        self._stream = stream
        self._log = log
        self._sent, self._received = directions
        self._sending, self._receiving = LineSplitter(), LineSplitter()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._record(self._sending, self._sent, data)
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        await self._log.drain()
        data = await self._stream.receive_some(max_bytes)
        # The end completes the line that it cuts.
        self._record(self._receiving, self._received, data or b"\n")
        return data

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _record(
        self, splitter: LineSplitter, direction: str, data: bytes | bytearray | memoryview
    ) -> None:
        for line in splitter.feed(data):
            if isinstance(line, bytes):
                self._log.write(direction, line)
