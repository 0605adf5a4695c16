"""`Endpoint`: a session on a stream, for async code. It runs on trio and on asyncio, by anyio.

The states are those of `session`. An endpoint with a recovery is *recovering* once its stream has
ended or broken; without one, it is closed then. It is also closed by `goodbye` and `close`, if the
recovery fails, and if `run` is cancelled.

The task of `run` owns the stream: it reads, and a child task writes, so that a line is sent
completely even if the task that sent it is cancelled. Messages that are queued before `run` has
started are sent when it starts.
"""

import os
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import anyio.abc
import anyio.lowlevel
from anyio.abc import ByteStream
from msgspec import Raw

from acpterm.jsonrpc import (
    MESSAGE_BYTES_MAX,
    Event,
    Id,
    NotificationReceived,
    RequestReceived,
    RpcError,
)
from acpterm.link.daemon_stream import Connected, DaemonRecovery, raw_socket
from acpterm.link.errors import LostError
from acpterm.link.session import ClientSession, Response

_CHUNK: Final = 64 * 1024
HIGH_WATER_BYTES: Final = 256 * 1024
"""The size of the send queue, in bytes, above which `drain` waits until the peer has read more."""
# How long the peer may take to end the connection after this side was ended.
_GOODBYE_TIMEOUT_S: Final = 1.0


class Endpoint(ClientSession):
    """A session on the stream of `connected`, and on those with which `recovery` replaces it.

    The parameters of `ClientSession` apply, and:

    - `on_recovered` is called after each reconnection.
    - `exit_reason` is awaited when the stream has ended. It returns why the stream has ended, which
      becomes the error message of the pending requests.
    - `before_event` is awaited before each message is dispatched, and `throttle` after that.
    """

    def __init__(
        self,
        connected: Connected,
        name: str,
        max_line: int = MESSAGE_BYTES_MAX,
        *,
        lenient: bool = False,
        recovery: DaemonRecovery | None = None,
        on_request: Callable[[RequestReceived], None] | None = None,
        on_notification: Callable[[NotificationReceived], None] | None = None,
        on_cancel: Callable[[Id], None] | None = None,
        on_invalid: Callable[[RpcError], None] | None = None,
        on_recovered: Callable[[], None] | None = None,
        exit_reason: Callable[[], Awaitable[str]] | None = None,
        before_event: Callable[[Event], Awaitable[None]] | None = None,
        throttle: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint,
    ) -> None:
        super().__init__(
            name,
            self._queue_line,
            max_line,
            lenient=lenient,
            unanswered=None if recovery is None else recovery.unanswered,
            on_request=on_request,
            on_notification=on_notification,
            on_cancel=on_cancel,
            on_invalid=on_invalid,
        )
        self._recovery = recovery
        self._on_recovered = on_recovered
        self._exit_reason = exit_reason
        self._before_event = before_event
        self.throttle = throttle
        """The parameter `throttle`. It may be replaced later: the host's endpoint waits for the
        queue of messages to the agent, and that queue is created after the endpoint."""
        # A peer that sends requests has to read their responses before more of them are read.
        self._answers = on_request is not None
        self._is_leaving = False
        self._ended = anyio.Event()
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._is_sending = self._is_broken = False
        self._queued = anyio.Event()
        self._drained = anyio.Event()
        self._connect(connected)

    def _connect(self, connected: Connected) -> None:
        self._stream, self._received = connected
        self._socket = raw_socket(self._stream)
        self._is_broken = False

    async def run(self) -> None:
        """Send and receive until the endpoint is closed; close it if this is cancelled."""
        try:
            while self.closed is None or self._is_leaving:
                await self._serve()
                if self._recovery is None:
                    break
                if self.closed is None:
                    await self._recover(self._recovery)
        finally:
            self.close(LostError(f"{self.name} is gone"))
            self._ended.set()

    async def _serve(self) -> None:
        stream = self._stream
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, stream)
                await self._read(stream)
                if self._exit_reason is not None:
                    self.close(LostError(await self._exit_reason()))
                tasks.cancel_scope.cancel()
        finally:
            await anyio.aclose_forcefully(stream)

    async def _recover(self, recovery: DaemonRecovery) -> None:
        lost = self.lost()
        # What is called meanwhile is queued behind what is sent again.
        self._lines, self._size = deque(lost.lines), sum(map(len, lost.lines))
        self._socket, self._is_sending, self._is_broken = None, False, False
        self._drained.set()
        try:
            connected = await recovery.reconnect()
        except LostError as error:
            self.close(error)
            return
        self._connect(connected)
        self.resumed(lost)
        if self._on_recovered is not None:
            self._on_recovered()

    async def request(
        self, method: str, params: Any, on_late: Callable[[Raw], None] | None = None
    ) -> Raw:
        """Send a request, wait for its response and return the result.

        Raises `RpcError` if the response is an error, and the reason (usually a `LostError`) if the
        endpoint is closed. If this is cancelled, `$/cancel_request` is sent. The request may
        succeed nevertheless, since its response may cross that: then `on_late` is called.
        """
        responses: list[Response] = []
        received = anyio.Event()
        is_abandoned = False

        def on_response(response: Response) -> None:
            responses.append(response)
            received.set()
            if is_abandoned:
                late(response)

        def late(response: Response) -> None:
            if on_late is not None and not isinstance(response, RpcError):
                on_late(response)

        id_ = self.call(method, params, on_response)
        try:
            await received.wait()
        except BaseException:
            is_abandoned = True
            if responses:
                late(responses[0])
            elif id_ is not None:
                self.cancel(id_)
            raise
        if isinstance(responses[0], RpcError):
            # All requests on a closed endpoint share one error, whose traceback would grow.
            raise responses[0].with_traceback(None)
        return responses[0]

    async def goodbye(self) -> None:
        """Close the endpoint; wait for at most a second until the peer has ended the connection."""
        if self.closed is not None:
            return
        self._recovery, self._is_leaving = None, True
        self.close(LostError(f"the connection to {self.name} was closed"))
        self._queued.set()
        with anyio.move_on_after(_GOODBYE_TIMEOUT_S, shield=True):
            await self._ended.wait()

    def close(self, why: RpcError) -> None:
        """Close the endpoint: fail every pending and later request with `why`."""
        super().close(why)
        self._drained.set()

    # The send queue

    @property
    def is_full(self) -> bool:
        """Whether the send queue is above `HIGH_WATER_BYTES`: the peer reads too slowly."""
        return self._size > HIGH_WATER_BYTES and self.closed is None

    async def drain(self) -> None:
        """Wait until the send queue has fallen to `HIGH_WATER_BYTES`."""
        await anyio.lowlevel.checkpoint()
        while self.is_full:
            if self._drained.is_set():
                # Never replace an event that other tasks wait for.
                self._drained = anyio.Event()
            await self._drained.wait()

    def _queue_line(self, line: bytes) -> None:
        if self._is_broken:
            return
        sent = self._send_now(line)
        if sent < len(line):
            rest = line[sent:]
            self._lines.append(rest)
            self._size += len(rest)
            self._queued.set()

    def _send_now(self, line: bytes) -> int:
        """Send without waiting for the event loop; return how much was sent."""
        if self._lines or self._is_sending or self._socket is None:
            return 0
        try:
            return os.write(self._socket.fileno(), line)
        except OSError:  # no room; or the peer has closed, which the writer will report
            return 0

    async def _write(self, stream: ByteStream) -> None:
        try:
            while True:
                while self._lines:
                    line = self._lines.popleft()
                    self._is_sending = True
                    await stream.send(line)
                    self._is_sending = False
                    self._size -= len(line)
                    if self._size <= HIGH_WATER_BYTES:
                        self._drained.set()
                if self._is_leaving:
                    await stream.send_eof()
                    return
                self._queued = anyio.Event()
                await self._queued.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            # The peer may have sent more before it stopped reading: keep receiving.
            self._is_broken = True
            self._lines.clear()
            self._size = 0
            self._drained.set()

    async def _read(self, stream: ByteStream) -> None:
        data, self._received = self._received, b""
        while True:
            for event in self.receive(data):
                if self._before_event is not None:
                    await self._before_event(event)
                self.dispatch(event)
                if self.closed is not None and not self._is_leaving:
                    return
                await self.throttle()
            if data and self._answers:
                await self.drain()
            try:
                data = await stream.receive(_CHUNK)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
