"""The client of the user's socket for commands that do several things at once, in trio.

Commands that send one request after another use `blocking_client` instead.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Generic

import trio
from anyio.abc import UNIXSocketStream
from msgspec import Raw

from acpterm.acp.base import Wire
from acpterm.acp.user_api import GetRequest, NoParams, TerminalInfo, UserTerminalRequest
from acpterm.commands.requests import TypedNames, not_running
from acpterm.config import Settings, user_socket
from acpterm.jsonrpc import Event, NotificationReceived, RpcError
from acpterm.link.daemon import DaemonError
from acpterm.link.daemon_stream import (
    Connected,
    DaemonRecovery,
    connect,
    connect_running,
    introduce,
)
from acpterm.link.endpoint import Endpoint
from acpterm.link.errors import LostError
from acpterm.link.handshake import initialize_params
from acpterm.link.session import OnResponse, Response, StreamRequest, W, decode_answer, token_of
from acpterm.link.unanswered import unknown_outcome, user_repeats
from acpterm.runtime import exec_context

# Maximum number of notifications that a stream buffers. While a stream's buffer is full, no more
# messages are received on the connection.
_WAITING_MAX: Final = 4


class Stream(Generic[W]):
    """An iterator over the params of the notifications that a request causes.

    The iteration ends with the response, which is then in `response`, decoded by `decode`, or is
    raised if it is an error. If the connection is lost, the iteration raises `LostError`. The
    caller may then pass `endpoint` to `UserClient.reconnect`, and open another stream.
    """

    response: W
    """The decoded response; set when the iteration has ended without an error."""

    def __init__(self, endpoint: Endpoint, decode: Callable[[Response], W]) -> None:
        self.endpoint: Final = endpoint
        self._decode = decode
        self._answer: Response | None = None
        self._send, self._receive = trio.open_memory_channel[Raw](_WAITING_MAX)

    def __aiter__(self) -> "Stream[W]":
        return self

    async def __anext__(self) -> Raw:
        async for params in self._receive:
            return params
        if self._answer is not None:
            self.response = self._decode(self._answer)
        raise StopAsyncIteration

    async def put(self, params: Raw) -> None:
        """Append the params of a notification; wait while `_WAITING_MAX` are unread."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # the reader has stopped
            # A copy, because a Raw value keeps the whole message in memory.
            await self._send.send(params.copy())

    def end(self, answer: Response) -> None:
        """Record the response, which ends the iteration."""
        self._answer = answer
        self._send.close()

    def close(self) -> None:
        """Drop all unread and later notifications, so that `put` no longer waits."""
        self._receive.close()


class UserClient:
    """A client that sends requests to the host `name`; `reconnect` may replace the connection.

    Methods lack the prefix `_acpterm/`. The tasks that send and receive run in `nursery`. `params`
    returns those of `initialize`.
    """

    def __init__(
        self,
        connected: Connected,
        name: str,
        settings: Settings,
        nursery: trio.Nursery,
        *,
        params: Callable[[], dict[str, Any]],
        questions: int,
    ) -> None:
        self.settings: Final = settings
        self.name: Final = name
        self.questions: Final = questions
        """How many questions waited for the user's answer when the connection was opened."""
        self._nursery = nursery
        self._recovery: Final = DaemonRecovery(settings, lambda _: params(), user=True)
        self._reconnecting = trio.Lock()
        self._tokens = 0
        self._names = TypedNames()
        self._streams: dict[str | None, Stream[Any]] = {}
        self._endpoint = self._open(connected)

    async def call(self, method: str, params: Wire, into: type[W]) -> W:
        """Send a request and return its result, decoded as `into`.

        Raises `RpcError` if the response is an error, `LostError` (a subclass) if the connection is
        lost and the request is not repeated, and `DaemonError` if the daemon has ended or is of
        another version.
        """
        answer = await self._request(method, params)
        return decode_answer(self.name, f"_acpterm/{method}", answer, into)

    async def _request(self, method: str, params: Wire) -> Raw:
        losses = 0
        while True:
            endpoint = self._endpoint
            try:
                return await endpoint.request(f"_acpterm/{method}", params)
            except LostError as error:
                losses += 1
                if losses > user_repeats(method):
                    raise unknown_outcome(self.name, method) from error
            except RpcError as error:
                raise self._names.failure(self.name, error, params) from error
            await self.reconnect(endpoint)

    def send(self, method: str, params: Wire, on_response: OnResponse) -> None:
        """Send a request, which is never repeated; `on_response` gets the result or error."""
        self._endpoint.call(f"_acpterm/{method}", params, on_response)

    async def terminal_request(self, method: str, terminal: str, into: type[W]) -> W:
        """Send `terminal/METHOD` about the terminal with this name or id; return the result."""
        answer = await self.call(f"terminal/{method}", UserTerminalRequest(terminal), into)
        self._names.note(answer, terminal)
        return answer

    async def get_for_input(self, terminal: str) -> TerminalInfo:
        """Return the terminal for a command that types into it, as `BlockingClient` does."""
        answer = await self.call("terminal/get", GetRequest(terminal, own=True), TerminalInfo)
        self._names.note(answer, terminal)
        return answer

    async def request_no_params(self, method: str, into: type[W]) -> W:
        """Send a request without params; return the result, decoded as `into`."""
        return await self.call(method, NoParams(), into)

    def token(self) -> str:
        """Return a new token for `stream`, which assigns notifications to their request."""
        self._tokens += 1
        return f"t{self._tokens}"

    @contextmanager
    def stream(self, method: str, params: StreamRequest, into: type[W]) -> Iterator[Stream[W]]:
        """Send a request; yield a `Stream` of the notifications that it causes.

        Leaving the block before the response has arrived cancels the request. While too many
        notifications are unread, nothing is received on the connection, so the block must not wait
        for the response to another request.
        """

        def decode(answer: Response) -> W:
            if isinstance(answer, LostError):
                raise answer
            if isinstance(answer, RpcError):
                raise self._names.failure(self.name, answer, params) from answer
            return decode_answer(self.name, f"_acpterm/{method}", answer, into)

        endpoint = self._endpoint
        stream = self._streams[params.token] = Stream(endpoint, decode)
        id_ = endpoint.call(f"_acpterm/{method}", params, stream.end)
        try:
            yield stream
        finally:
            del self._streams[params.token]
            stream.close()
            if id_ is not None:
                endpoint.cancel(id_)

    async def reconnect(self, lost: Endpoint) -> None:
        """Replace the connection `lost` by a new one, unless another task has done so already.

        Raises `DaemonError` if the daemon has ended, or if no worker responds within
        `resume_timeout` seconds (a setting).
        """
        async with self._reconnecting:
            if self._endpoint is not lost:
                return
            try:
                self._endpoint = self._open(await self._recovery.reconnect())
            except LostError as error:
                raise DaemonError(error.message) from error

    def _open(self, connected: Connected) -> Endpoint:
        endpoint = Endpoint(connected, self.name, before_event=self._deliver)
        self._nursery.start_soon(endpoint.run)
        return endpoint

    async def _deliver(self, event: Event) -> None:
        # Waits while the stream is full, and so nothing more is received.
        match event:
            case NotificationReceived(_, Raw() as params):
                if (stream := self._streams.get(token_of(params))) is not None:
                    await stream.put(params)


@asynccontextmanager
async def open_user_client(
    settings: Settings, config: str | None = None, *, start: bool = True, remote: bool = False
) -> AsyncIterator[UserClient]:
    """Connect to the daemon, and yield a client for the duration of the block.

    If no daemon is running, start one if `start` is true, otherwise raise `NotRunningError`. A
    daemon that is started reads the settings file `config`, if given. Raises `DaemonError` if no
    connection can be made. Later errors are raised in exception groups.
    """
    stream = await (connect(settings, config, user=True) if start else connect_running(settings))
    if stream is None:
        raise not_running(settings)
    name = f"the daemon at {user_socket(settings)}"
    async with user_client_on(stream, name, settings, remote=remote) as client:
        yield client


@asynccontextmanager
async def user_client_on(
    stream: UNIXSocketStream, name: str, settings: Settings, *, remote: bool = False
) -> AsyncIterator[UserClient]:
    """Yield a client of the host `name` at the other end of `stream`, which is closed at the end.

    Set `remote` if the host is on another machine, where the execution context of this process
    means nothing. Errors are those of `open_user_client`, in exception groups.
    """

    def params() -> dict[str, Any]:
        return initialize_params("acpterm", None if remote else exec_context.current())

    async with trio.open_nursery() as nursery:
        connected, welcome = await introduce(stream, name, params(), settings)
        client = UserClient(
            connected, name, settings, nursery, params=params, questions=welcome.questions
        )
        try:
            yield client
        finally:
            nursery.cancel_scope.cancel()
