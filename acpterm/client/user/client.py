"""The client of the user's socket for commands that do several things at once, in trio.

Commands that send one request after another use `blocking_client` instead.

The connection is lost when the daemon's worker dies. `requests` describes which requests are then
repeated.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Generic

import trio
from msgspec import Raw

from acpterm.acp.base import Wire
from acpterm.acp.user_api import GetRequest, NoParams, TerminalInfo, UserTerminalRequest
from acpterm.client.user.requests import (
    REPEATABLE,
    StreamRequest,
    TypedNames,
    W,
    decode_answer,
    not_running,
    token_of,
    unknown_outcome,
)
from acpterm.config import Settings, user_socket
from acpterm.jsonrpc import Event, NotificationReceived, RpcError
from acpterm.link.daemon import DaemonError
from acpterm.link.daemon_stream import connect, connect_running, initialize, reconnect
from acpterm.link.endpoint import Endpoint, OnResponse, Response
from acpterm.link.errors import LostError
from acpterm.link.handshake import initialize_params
from acpterm.runtime import exec_context

# Maximum number of notifications that a stream buffers. While a stream's buffer is full, no more
# messages are received on the connection.
_WAITING_MAX: Final = 4


class Stream(Generic[W]):
    """An iterator over the params of the notifications that a request causes.

    `UserClient.stream` creates it. The iteration ends when the response to the request arrives;
    `response` is then the response, decoded by `decode`. If the response is an error, the iteration
    raises that error. If the connection is lost, the iteration raises `LostError`. The caller may
    then pass `endpoint`, the lost connection, to `UserClient.reconnect`, and open another stream.
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
        """Wait for the next notification; return its params."""
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
    """A client that sends requests to the daemon over `stream`, which `reconnect` may replace.

    Error messages refer to the daemon as `name`. The tasks that send and receive run in `nursery`.
    With `remote`, the execution context of this process is not sent, since it means nothing on the
    other host that runs the daemon.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        name: str,
        settings: Settings,
        nursery: trio.Nursery,
        *,
        remote: bool = False,
    ) -> None:
        self.settings: Final = settings
        self.name: Final = name
        self._remote: Final = remote
        self._nursery = nursery
        self._reconnecting = trio.Lock()
        self.questions = 0
        """How many questions waited for the user's answer when the connection was opened."""
        self._tokens = 0
        self._names = TypedNames()
        self._streams: dict[str | None, Stream[Any]] = {}
        self._endpoint = self._open(stream)

    async def initialize(self) -> None:
        """Send `initialize` and wait for the response.

        Raises `DaemonError` if the daemon refuses, or does not respond in time.
        """
        welcome = await initialize(self._endpoint, "acpterm", self._context(), self.settings)
        self.questions = welcome.questions

    def _context(self) -> exec_context.ExecContext | None:
        return None if self._remote else exec_context.current()

    async def call(self, method: str, params: Wire, into: type[W]) -> W:
        """Send a request and return its result, decoded as `into`.

        `method` lacks the prefix `_acpterm/`. Raises `RpcError` if the response is an error,
        `LostError` (a subclass) if the connection is lost and the request is not repeated, and
        `DaemonError` if the daemon has ended or is of another version.
        """
        answer = await self._request(method, params)
        return decode_answer(self.name, f"_acpterm/{method}", answer, into)

    async def _request(self, method: str, params: Wire) -> Raw:
        repeats = REPEATABLE.get(method, 0)
        while True:
            endpoint = self._endpoint
            try:
                return await endpoint.request(f"_acpterm/{method}", params)
            except LostError as error:
                if repeats <= 0:
                    raise unknown_outcome(self.name, method) from error
            except RpcError as error:
                raise self._names.failure(self.name, error, params) from error
            repeats -= 1
            await self.reconnect(endpoint)

    def send(self, method: str, params: Wire, on_response: OnResponse) -> None:
        """Send a request; call `on_response` with the result or error when the response arrives.

        `method` lacks the prefix `_acpterm/`. The request is never repeated: if the connection is
        lost, the error is a `LostError`.
        """
        self._endpoint.call(f"_acpterm/{method}", params, on_response)

    async def terminal_request(self, method: str, terminal: str, into: type[W]) -> W:
        """Send a request about the terminal with the name or id `terminal`; return the result.

        `method` lacks the prefix `_acpterm/terminal/`. The result is decoded as `into`. Raises the
        errors of `call`.
        """
        answer = await self.call(f"terminal/{method}", UserTerminalRequest(terminal), into)
        self._names.note(answer, terminal)
        return answer

    async def get_for_input(self, terminal: str) -> TerminalInfo:
        """Return the terminal with this name or id, for a command that types into it.

        ``@last`` means the newest of the user's terminals. If the user and an agent have terminals
        of the same name, the name means the user's terminal. So nothing is typed into an agent's
        terminal by mistake. Raises the errors of `call`, including `RpcError` for an unknown name.
        """
        answer = await self.call("terminal/get", GetRequest(terminal, own=True), TerminalInfo)
        self._names.note(answer, terminal)
        return answer

    async def request_no_params(self, method: str, into: type[W]) -> W:
        """Send a request without params; return the result, decoded as `into`.

        `method` lacks the prefix `_acpterm/`. Raises the errors of `call`.
        """
        return await self.call(method, NoParams(), into)

    def token(self) -> str:
        """Return a new token for the params of a request that is sent by the method `stream`.

        The daemon puts the token into each notification that this request causes. So a client can
        assign the notifications to its requests.
        """
        self._tokens += 1
        return f"t{self._tokens}"

    @contextmanager
    def stream(self, method: str, params: StreamRequest, into: type[W]) -> Iterator[Stream[W]]:
        """Send a request; yield a `Stream` of the notifications that it causes.

        The block iterates over the stream. The response ends the iteration, and is decoded as
        `into`. Leaving the block before the response has arrived cancels the request. While too
        many notifications are unread, nothing is received on the connection, so the block must not
        wait for the response to another request.
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
            limit = self.settings.resume_timeout
            if not limit:
                raise DaemonError(f"{self.name} is gone")
            try:
                params = initialize_params("acpterm", self._context())
                found = await reconnect(self.settings, params, limit, user=True)
            except DaemonError as error:
                raise DaemonError(f"{self.name} is gone: {error}") from error
            self._endpoint = self._open(found.stream, found.received)

    def _open(self, stream: trio.abc.Stream, received: bytes = b"") -> Endpoint:
        endpoint = Endpoint(stream, self.name, before_event=self._deliver)
        self._nursery.start_soon(endpoint.run, received)
        return endpoint

    async def _deliver(self, event: Event) -> None:
        """Pass a notification to the `Stream` of the request that caused it.

        A `Stream` is the iterator that the method `stream` yields. Wait while this iterator is
        full. Do nothing if there is no such iterator, or if `event` is not a notification.
        """
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
    daemon that is started reads the settings file `config`, if given. Set `remote` if the daemon
    runs on another host: this process's execution context is then not sent. Raises `DaemonError` if
    no connection can be made. Later errors are raised in exception groups: a `DaemonError` if the
    handshake fails, and errors of the block.
    """
    stream = await (connect(settings, config, user=True) if start else connect_running(settings))
    if stream is None:
        raise not_running(settings)
    name = f"the daemon at {user_socket(settings)}"
    async with user_client_on(stream, name, settings, remote=remote) as client:
        yield client


@asynccontextmanager
async def user_client_on(
    stream: trio.abc.Stream, name: str, settings: Settings, *, remote: bool = False
) -> AsyncIterator[UserClient]:
    """Yield a client on the open connection `stream`; close the connection after the block.

    Error messages refer to the host as `name`. Set `remote` if the host is on another machine: this
    process's execution context is then not sent. Raises `DaemonError` if the host refuses the
    handshake, or does not respond in time. This error and errors of the block are raised in
    exception groups.
    """
    async with trio.open_nursery() as nursery:
        client = UserClient(stream, name, settings, nursery, remote=remote)
        try:
            await client.initialize()
            yield client
        finally:
            nursery.cancel_scope.cancel()
