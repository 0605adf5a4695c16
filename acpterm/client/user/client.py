"""The user's connection to the daemon, for commands that do several things at once.

The connection is lost when the daemon's worker dies. `requests` describes which requests are then
repeated.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio
from msgspec import Raw

from acpterm.acp.base import Wire
from acpterm.acp.user_api import GetRequest, NoParams, TerminalInfo, UserTerminalRequest
from acpterm.client.daemon import DaemonError
from acpterm.client.daemon_stream import connect, connect_running, reconnect
from acpterm.client.endpoint import Endpoint
from acpterm.client.errors import LostError
from acpterm.client.handshake import initialize_params
from acpterm.client.host_connection import initialize
from acpterm.client.user.requests import (
    ONGOING,
    REPEATABLE,
    TypedNames,
    W,
    decode_answer,
    not_running,
    unknown_outcome,
)
from acpterm.config import Settings, user_socket
from acpterm.jsonrpc import NotificationReceived, RpcError
from acpterm.runtime import exec_context


class UserClient:
    """A connection to the daemon.

    `on_notification` is called with the method and params of each notification.
    """

    def __init__(self, endpoint: Endpoint, settings: Settings, nursery: trio.Nursery) -> None:
        self.settings: Final = settings
        self.on_notification: Callable[[str, Raw], None] = lambda *_: None
        self.throttle: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        """Awaited after each message, before the next one is handled."""
        self._nursery = nursery
        self._reconnecting = trio.Lock()
        self._tokens = 0
        self._names = TypedNames()
        self.endpoint = endpoint
        self._run(endpoint)

    async def call(self, method: str, params: Wire, into: type[W]) -> W:
        """Send a request and wait for its answer.

        Raises `RpcError` (including `LostError`), and `DaemonError` if the answer shows that the
        daemon is of another version.
        """
        answer = await self._request(method, params)
        return decode_answer(self.endpoint.name, method, answer, into)

    async def _request(self, method: str, params: Wire) -> Raw:
        repeats = REPEATABLE.get(method, 0)
        while True:
            endpoint = self.endpoint
            try:
                return await endpoint.request(f"_acpterm/{method}", params)
            except LostError as error:
                if method in ONGOING:
                    raise
                if repeats <= 0:
                    raise unknown_outcome(endpoint.name, method) from error
            except RpcError as error:
                raise self._names.failure(endpoint.name, error, params) from error
            repeats -= 1
            await self.reconnect(endpoint)

    async def terminal_request(self, method: str, terminal: str, into: type[W]) -> W:
        """Call a method that takes only a terminal; raises as `call` does."""
        answer = await self.call(f"terminal/{method}", UserTerminalRequest(terminal), into)
        self._names.note(answer, terminal)
        return answer

    async def own(self, terminal: str) -> TerminalInfo:
        """Return the terminal to type into; ``@last`` is the last of the user's own terminals."""
        answer = await self.call("terminal/get", GetRequest(terminal, own=True), TerminalInfo)
        self._names.note(answer, terminal)
        return answer

    async def request_no_params(self, method: str, into: type[W]) -> W:
        """Call a method that takes no params; raises as `call` does."""
        return await self.call(method, NoParams(), into)

    async def reconnect(self, lost: Endpoint) -> None:
        """Replace the connection `lost` by a new one, unless another task has done so already.

        Takes at most `resume_timeout` seconds. Raises `DaemonError` if it cannot reconnect.
        """
        async with self._reconnecting:
            if self.endpoint is not lost:
                return
            limit = self.settings.resume_timeout
            if not limit:
                raise DaemonError(f"{lost.name} is gone")
            try:
                params = initialize_params("acpterm", exec_context.current())
                found = await reconnect(self.settings, params, limit, user=True)
            except DaemonError as error:
                raise DaemonError(f"{lost.name} is gone: {error}") from error
            self.endpoint = Endpoint(found.stream, lost.name)
            self._run(self.endpoint)

    def token(self) -> str:
        """Return a new token, for a request with notifications."""
        self._tokens += 1
        return f"t{self._tokens}"

    def _run(self, endpoint: Endpoint) -> None:
        endpoint.on_notification = self._take
        endpoint.throttle = self._pace
        self._nursery.start_soon(endpoint.run)

    async def _pace(self) -> None:
        await self.throttle()

    def _take(self, event: NotificationReceived) -> None:
        if isinstance(event.params, Raw):
            self.on_notification(event.method, event.params)


@asynccontextmanager
async def open_user_client(
    settings: Settings,
    config: str | None = None,
    *,
    start: bool = True,
    answer_timeout_s: float | None = None,
) -> AsyncIterator[UserClient]:
    """Connect to the daemon for the duration of the block.

    If no daemon is running, start one (with `start`) or raise `NotRunningError`. Raises
    `DaemonError` if the daemon cannot be used, for example because it does not answer `initialize`
    within `answer_timeout_s` seconds (see `host_connection.initialize` for the default). Later
    failures are raised by each request, as `RpcError`.
    """
    path = user_socket(settings)
    stream = await (connect(settings, config, user=True) if start else connect_running(settings))
    if stream is None:
        raise not_running(settings)
    async with trio.open_nursery() as nursery:
        endpoint = Endpoint(stream, f"the daemon at {path}")
        client = UserClient(endpoint, settings, nursery)
        try:
            await initialize(
                endpoint, "acpterm", exec_context.current(), settings, answer_timeout_s
            )
            yield client
        finally:
            nursery.cancel_scope.cancel()
