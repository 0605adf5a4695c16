"""One connection to a daemon, on anyio: requests, notifications, and recovery after a loss.

States:

- *open*: requests are sent.
- *recovering*, after the stream has ended or broken: new requests are queued, and
  `StreamRecovery.reconnect` is awaited. Then `StreamRecovery.repeats` decides which of the requests
  without a response are sent again; the others fail. A connection without one is closed instead.
- *closed*, by `goodbye`, after an invalid message, after a failed reconnection, or if `run` was
  cancelled: every pending and every later request raises `ClosedError`.

Ownership: the task of `run` owns the stream. It reads, and a child task writes, so that a line is
sent completely even if the task that sends a request is cancelled. Each request has a `Call`, which
exists until its response has arrived, even if no task waits for it any more.

Cancellation: a request that is cancelled before it was queued is not sent. If it is cancelled
after that, the peer is sent ``$/cancel_request``. The request may succeed nevertheless, since its
response may cross the cancellation: then the result is passed to `on_late`, if that was given. An
error response is ignored.

If the peer does not read, `request` waits before it queues more.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import anyio
from anyio.abc import ByteStream
from msgspec import UNSET, Raw, UnsetType

from acpterm.api.errors import ClosedError, request_error
from acpterm.api.transport import Connected, StreamRecovery
from acpterm.jsonrpc import (
    ErrorReceived,
    Event,
    InvalidReceived,
    NotificationReceived,
    Peer,
    ResponseReceived,
    RpcError,
)


class Call:
    """A request that was sent. `done` is set once `result` can be called.

    `on_done` is called at the same time. If the call was abandoned (`is_abandoned`), because no
    task waits for it any more, `on_late` is called with a result that arrives afterwards.
    """

    def __init__(
        self, on_late: Callable[[Raw], None] | None, on_done: Callable[[], None] | None
    ) -> None:
        self.done: Final = anyio.Event()
        self.is_abandoned = False
        self._on_late = on_late
        self._on_done = on_done
        self._answer: Raw | RpcError | None = None
        self._closed = ""

    def result(self) -> Raw:
        """Return the result."""
        if self._answer is None:
            raise ClosedError(self._closed)
        if isinstance(self._answer, RpcError):
            raise request_error(self._answer)
        return self._answer

    def answer(self, answer: Raw | RpcError) -> None:
        """End the call with its response: a result or an error."""
        self._answer = answer
        self._end()
        if self.is_abandoned:
            self.late()

    def late(self) -> None:
        """Pass the result to `on_late`, since no task waits for the result any more."""
        if self._on_late is not None and isinstance(self._answer, Raw):
            self._on_late(self._answer)

    def close(self, why: str) -> None:
        """End the call without a response; `why` becomes the message of `ClosedError`."""
        self._closed = why
        self._end()

    def _end(self) -> None:
        self.done.set()
        if self._on_done is not None:
            self._on_done()


_CHUNK: Final = 64 * 1024
# Bytes queued for sending above which new requests wait.
_HIGH_WATER_BYTES: Final = 256 * 1024
# How long the daemon may take to end the connection after this side was ended.
_GOODBYE_TIMEOUT_S: Final = 1.0


class Connection:
    """A connection to a daemon. It uses the stream in `connected`, until that stream is lost.

    Then `recovery` replaces the stream; without a `recovery`, the connection is closed. `name` is
    the name of the peer in error messages. `on_notification` is called with each notification, and
    `on_recovered` after each reconnection.
    """

    def __init__(
        self,
        connected: Connected,
        name: str,
        recovery: StreamRecovery | None,
        on_notification: Callable[[NotificationReceived], None],
        on_recovered: Callable[[], None],
    ) -> None:
        self.name: Final = name
        self._stream, self._received = connected
        self._recovery = recovery
        self._on_notification = on_notification
        self._on_recovered = on_recovered
        self._peer = Peer()
        self._calls: dict[int, Call] = {}
        self._closed: str | None = None
        self._is_leaving = False
        self._ended = anyio.Event()
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._queued = anyio.Event()
        self._drained = anyio.Event()

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed."""
        return self._closed is not None

    async def run(self) -> None:
        """Send and receive until the connection is closed; close it if cancelled."""
        try:
            await self._serve()
            while self._closed is None and self._recovery is not None:
                if await self._recover(self._recovery):
                    await self._serve()
        finally:
            self.close(f"{self.name} is gone")
            self._ended.set()

    async def request(
        self, method: str, params: Any, on_late: Callable[[Raw], None] | None = None
    ) -> Raw:
        """Send a request, and return its result."""
        await self._drain()
        id_, call = self.start(method, params, on_late)
        try:
            await call.done.wait()
        except BaseException:
            self.abandon(id_, call)
            raise
        return call.result()

    def start(
        self,
        method: str,
        params: Any,
        on_late: Callable[[Raw], None] | None = None,
        on_done: Callable[[], None] | None = None,
    ) -> tuple[int, Call]:
        """Queue a request; return what `abandon` takes. `on_done` is called at its end."""
        if self._closed is not None:
            raise ClosedError(self._closed)
        id_, line = self._peer.request(method, params)
        call = self._calls[id_] = Call(on_late, on_done)
        if self._recovery is not None:
            self._recovery.repeats.request(id_, method, line)
        self._put(line)
        return id_, call

    def abandon(self, id_: int, call: Call) -> None:
        """Cancel a request, since no task waits for its response any more."""
        if self.is_closed:
            return
        if call.done.is_set():
            call.late()
        elif not call.is_abandoned:
            call.is_abandoned = True
            line = self._peer.cancel(id_)
            if self._recovery is not None:
                self._recovery.repeats.cancel(id_, line)
            self._put(line)

    def close(self, why: str) -> None:
        """Close the connection: every pending and later request raises `ClosedError` with `why`."""
        if self._closed is None:
            self._closed = why
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.close(self._closed)
        self._drained.set()

    async def goodbye(self) -> None:
        """Close the connection: pending and later requests raise `ClosedError`."""
        if self._closed is not None:
            return
        self._recovery, self._is_leaving = None, True
        self.close(f"the connection to {self.name} was closed")
        with anyio.move_on_after(_GOODBYE_TIMEOUT_S, shield=True):
            self._queue.append(b"")
            self._queued.set()
            await self._ended.wait()

    async def _drain(self) -> None:
        while self._queued_bytes > _HIGH_WATER_BYTES and self._closed is None:
            if self._drained.is_set():
                # Never replace an event that other tasks wait for.
                self._drained = anyio.Event()
            await self._drained.wait()

    def _put(self, line: bytes) -> None:
        self._queue.append(line)
        self._queued_bytes += len(line)
        self._queued.set()

    async def _serve(self) -> None:
        stream = self._stream
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, stream)
                await self._read(stream)
                tasks.cancel_scope.cancel()
        finally:
            await anyio.aclose_forcefully(stream)

    async def _recover(self, recovery: StreamRecovery) -> bool:
        """Reconnect, and queue the messages to send again; return whether there is a stream."""
        self._peer.close()  # drops an incomplete line
        lost = recovery.repeats.lost()
        self._queue = deque(lost.lines)
        self._queued_bytes = sum(map(len, lost.lines))
        self._queued.set()
        self._drained.set()
        try:
            self._stream, self._received = await recovery.reconnect()
        except ClosedError as error:
            self.close(str(error))
            return False
        for id_, failure in lost.errors:
            if isinstance(id_, int):
                self._peer.give_up(id_)
                self._answer(id_, failure)
        self._on_recovered()
        return True

    async def _write(self, stream: ByteStream) -> None:
        try:
            while True:
                while self._queue:
                    line = self._queue.popleft()
                    if not line:
                        await stream.send_eof()
                        return
                    self._queued_bytes -= len(line)
                    await stream.send(line)
                    if self._queued_bytes <= _HIGH_WATER_BYTES:
                        self._drained.set()
                self._queued = anyio.Event()
                await self._queued.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return  # the reader notices the end; the peer's last messages can still be read

    async def _read(self, stream: ByteStream) -> None:
        data, self._received = self._received, b""
        while True:
            for event in self._peer.receive_data(data):
                self._dispatch(event)
            if self._closed is not None and not self._is_leaving:
                return
            try:
                data = await stream.receive(_CHUNK)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    def _dispatch(self, event: Event) -> None:
        match event:
            case ResponseReceived(id_, result):
                self._answer(id_, result)
            case ErrorReceived(id_, error):
                data = UNSET if isinstance(error.data, UnsetType) else error.data
                self._answer(id_, RpcError(error.code, error.message, data))
            case NotificationReceived():
                self._on_notification(event)
            case InvalidReceived(_, invalid):
                self.close(f"{self.name} sent an invalid message: {invalid.message}")
            case _:
                pass  # the daemon sends no requests

    def _answer(self, id_: int, answer: Raw | RpcError) -> None:
        if self._recovery is not None:
            self._recovery.repeats.answered(id_)
        if (call := self._calls.pop(id_, None)) is not None:
            call.answer(answer)
