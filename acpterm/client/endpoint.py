"""Our end of a JSON-RPC stream: what we ask and are answered, what we are asked and answer.

Two of them are in use: towards the host, which only answers, and in `acpterm prompt` towards the
agent, which asks as well.

States: *open*; *closed*, when the stream has ended or broken, or `run` was cancelled: each request
without an answer gets a `LostError`, and so does what is asked from then on, at once. What is put
before `run` has begun is sent when it has.

With a `Recovery` there is a state between: *recovering*, when the stream has ended or broken. What
is asked and told meanwhile waits. `Recovery.reconnect` returns another stream, on which what the
other side may not have read or answered is sent again (`unanswered`); or it raises, and the
endpoint is closed.

An answer is given to a function that is called in the order in which answers come, by the reader:
it must not wait. What the other side asks goes to `asked` and `told`, likewise.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias

import trio
from msgspec import UNSET, Raw, UnsetType

from acpterm.client.errors import LostError
from acpterm.client.unanswered import Unanswered
from acpterm.jsonrpc import (
    INTERNAL_ERROR,
    LINE_BYTES_MAX,
    METHOD_NOT_FOUND,
    CancelReceived,
    ErrorReceived,
    Event,
    Id,
    InvalidReceived,
    NotificationReceived,
    Peer,
    RequestReceived,
    ResponseReceived,
    RpcError,
    quote,
)
from acpterm.runtime.send_queue import SendQueue

_CHUNK: Final = 64 * 1024
HIGH_WATER_BYTES: Final = 256 * 1024
"""Bytes that may wait to be sent before what brings more is held up."""

Response: TypeAlias = Raw | RpcError
OnResponse: TypeAlias = Callable[[Response], None]


class Recovery(Protocol):
    """How an endpoint gets another stream when it has lost one."""

    @property
    def unanswered(self) -> Unanswered:
        """What was sent and has no answer; the endpoint keeps it."""

    async def reconnect(self) -> tuple[trio.abc.Stream, bytes]:
        """Return another stream and what was received from it. Raises `LostError`."""


def _refuse(endpoint: "Endpoint", request: RequestReceived) -> None:
    what = f"there is no method {quote(request.method)} here"
    endpoint.fail(request.id, RpcError(METHOD_NOT_FOUND, what))


async def _at_once(event: Event) -> None:
    del event


class Endpoint:
    """One end of a stream. `whom` is what messages call the other end."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        whom: str,
        max_line: int = LINE_BYTES_MAX,
        *,
        lenient: bool = False,
        recovery: Recovery | None = None,
    ) -> None:
        self._stream = stream
        self._recovery = recovery
        self._unanswered = None if recovery is None else recovery.unanswered
        self.name: Final = whom
        self._peer = Peer(max_line, lenient=lenient)
        self._queue = SendQueue(stream, HIGH_WATER_BYTES)
        self._answered: dict[int, OnResponse] = {}
        self._closed: RpcError | None = None
        self.on_request: Callable[[RequestReceived], None] = lambda request: _refuse(self, request)
        """Called with each request; `respond` or `fail` answers it, then or later."""
        self.on_notification: Callable[[NotificationReceived], None] = lambda _: None
        """Called with each notification."""
        self.on_cancel: Callable[[Id], None] = lambda _: None
        """Called with the id of each request in progress that is no longer wanted."""
        self.on_invalid: Callable[[RpcError], None] | None = None
        """Called for each line that is no message, which is then not answered; without it, the
        first such line is the end: whoever waits could wait for ever."""
        self.exit_reason: Callable[[], Awaitable[str]] | None = None
        """Awaited when the stream has ended: says why, for whoever waits for an answer."""
        self.before_event: Callable[[Event], Awaitable[None]] = _at_once
        """Awaited before each message is dealt with."""
        self.throttle: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        """Awaited after each message: until the next one may be dealt with."""

    async def run(self) -> None:
        """Read and write until the stream ends, breaks or this is cancelled. Closes it."""
        received = b""
        try:
            while self._closed is None:
                await self._serve(received)
                if self._recovery is None:
                    break
                if self._closed is None:
                    received = await self._recover(self._recovery)
        finally:
            self.close(LostError(f"{self.name} is gone"))

    async def _serve(self, received: bytes) -> None:
        async with self._stream, trio.open_nursery() as nursery:
            nursery.start_soon(self._write, nursery.cancel_scope)
            await self._read(received)
            if self.exit_reason is not None:
                self.close(LostError(await self.exit_reason()))
            nursery.cancel_scope.cancel()

    async def _recover(self, recovery: Recovery) -> bytes:
        """Reconnect, queue what is to be sent again, and return what was received."""
        self._peer.close()  # half a line
        lost = recovery.unanswered.lost()
        self._queue.restart(lost.lines)
        try:
            self._stream, received = await recovery.reconnect()
        except LostError as error:
            self.close(error)
            return b""
        self._queue.connect(self._stream)
        for id_, answer in lost.errors:
            if isinstance(id_, int):
                self._peer.give_up(id_)
                self._answer(id_, answer)
        return received

    def call(self, method: str, params: Any, answered: OnResponse) -> int | None:
        """Send a request; `answered` is called with its result or error. Never waits.

        Gives its id, for `cancel`; None when the stream is closed.
        """
        if self._closed is not None:
            answered(self._closed)
            return None
        id_, line = self._peer.request(method, params)
        self._answered[id_] = answered
        if self._unanswered is not None:
            self._unanswered.request(id_, method, line)
        self._queue.put(line)
        return id_

    async def request(self, method: str, params: Any) -> Raw:
        """Send a request and wait for its result. Raises `RpcError` for an error.

        Cancelled, it says so to the other side, and nobody takes the answer.
        """
        answers: list[Response] = []
        come = trio.Event()

        def take(answer: Response) -> None:
            answers.append(answer)
            come.set()

        id_ = self.call(method, params, take)
        try:
            await come.wait()
        except trio.Cancelled:
            if id_ is not None:
                self.cancel(id_)
            raise
        if isinstance(answers[0], RpcError):
            raise answers[0]
        return answers[0]

    def notify(self, method: str, params: Any) -> None:
        """Send a notification. Never waits; after the end it is dropped."""
        if self._closed is None:
            line = self._peer.notify(method, params)
            if self._unanswered is not None:
                self._unanswered.notification(method, line)
            self._queue.put(line)

    def cancel(self, id_: int) -> None:
        """Say that a request of ours is no longer wanted; it is answered all the same."""
        if self._closed is None and id_ in self._answered:
            line = self._peer.cancel(id_)
            if self._unanswered is not None:
                self._unanswered.cancel(id_, line)
            self._queue.put(line)

    def respond(self, id_: Id, result: Any) -> None:
        """Answer a request of the other side's."""
        if self._closed is None:
            self._queue.put(self._peer.respond(id_, result))

    def fail(self, id_: Id, error: RpcError) -> None:
        """Answer a request of the other side's with an error."""
        if self._closed is None:
            self._queue.put(self._peer.respond_error(id_, error))

    def respond_raw(self, id_: Id, answer: Response) -> None:
        """Answer a request of the other side's with a result or an error, whichever it is."""
        if isinstance(answer, RpcError):
            self.fail(id_, answer)
        else:
            self.respond(id_, answer)

    async def drain(self) -> None:
        """Wait until there is not too much waiting to be sent."""
        await self._queue.drain()

    def close(self, why: RpcError) -> None:
        """Answer every request without an answer, and every later one, with `why`."""
        if self._closed is None:
            self._closed = why
        waiting, self._answered = self._answered, {}
        for answered in waiting.values():
            answered(self._closed)

    async def _write(self, scope: trio.CancelScope) -> None:
        try:
            await self._queue.run()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # What it has said last is still to be read.
            return
        scope.cancel()

    async def _read(self, data: bytes | bytearray) -> None:
        while True:
            for event in self._peer.receive_data(data):
                await self.before_event(event)
                self._take(event)
                if self._closed is not None:
                    return
                await self.throttle()
            if data:
                await self._queue.drain()
            try:
                data = await self._stream.receive_some(_CHUNK)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not data:
                return

    def _take(self, event: Event) -> None:
        match event:
            case ResponseReceived(id_, result):
                self._answer(id_, result)
            case ErrorReceived(id_, error):
                data = UNSET if isinstance(error.data, UnsetType) else error.data
                self._answer(id_, RpcError(error.code, error.message, data))
            case RequestReceived():
                self.on_request(event)
            case NotificationReceived():
                self.on_notification(event)
            case CancelReceived(id_):
                self.on_cancel(id_)
            case InvalidReceived(_, wrong):
                if self.on_invalid is not None:
                    self.on_invalid(wrong)
                else:
                    what = f"{self.name} said what is no message: {wrong.message}"
                    self.close(RpcError(INTERNAL_ERROR, what))
            case _:
                pass  # an answer that nobody waits for any more

    def _answer(self, id_: int, answer: Response) -> None:
        if self._unanswered is not None:
            self._unanswered.answered(id_)
        if answered := self._answered.pop(id_, None):
            answered(answer)
