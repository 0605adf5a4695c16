"""A front end of the person's: a connection to the daemon's other socket, which is not for agents.

The daemon is started when it is not running, unless it would have nothing to show then.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import msgspec
import trio
from msgspec import Raw

from acpterm.acp import Wire
from acpterm.acp.person import NamedRequest, Nothing
from acpterm.client.daemon import DaemonError, connect, connect_running
from acpterm.client.endpoint import Endpoint
from acpterm.client.host_connection import initialize
from acpterm.config import Settings, user_socket
from acpterm.host import asker
from acpterm.jsonrpc import REQUEST_CANCELLED, NotificationReceived, RpcError

W = TypeVar("W", bound=Wire)


class NotRunningError(DaemonError):
    """No daemon runs, and none was to be started."""


class Front:
    """A connection to the daemon. `told` is called with each notification: method and params."""

    def __init__(self, endpoint: Endpoint, settings: Settings) -> None:
        self.endpoint: Final = endpoint
        self.settings: Final = settings
        self.told: Callable[[str, Raw], None] = lambda *_: None
        endpoint.told = self._take
        self._tokens = 0

    async def ask(self, method: str, params: Wire, into: type[W]) -> W:
        """Ask for something and wait for the answer.

        Raises `RpcError`, and `DaemonError` for an answer of another version of the daemon's.
        """
        try:
            answer = await self.endpoint.request(f"_acpterm/{method}", params)
        except RpcError as error:
            if error.code != REQUEST_CANCELLED:
                raise
            # Nobody here has cancelled it and waits for the answer.
            raise DaemonError(f"{self.endpoint.whom} is gone") from error
        try:
            return msgspec.json.decode(answer, type=into)
        except msgspec.DecodeError as error:
            raise DaemonError(
                f"{self.endpoint.whom} is of another version (_acpterm/{method}: {error}): end it "
                "with acpterm shutdown; the next command starts one of this version"
            ) from error

    async def about(self, method: str, terminal: str, into: type[W]) -> W:
        """Ask for something about one terminal that takes no other params, likewise."""
        return await self.ask(f"terminal/{method}", NamedRequest(terminal), into)

    async def ask_plain(self, method: str, into: type[W]) -> W:
        """Ask for something that takes no params, likewise."""
        return await self.ask(method, Nothing(), into)

    def token(self) -> str:
        """Make a token for a request that goes on."""
        self._tokens += 1
        return f"t{self._tokens}"

    def _take(self, event: NotificationReceived) -> None:
        if isinstance(event.params, Raw):
            self.told(event.method, event.params)


@asynccontextmanager
async def open_front(
    settings: Settings, config: str | None = None, *, start: bool = True
) -> AsyncIterator[Front]:
    """Be connected to the daemon for as long as the block lasts.

    One that is not running is started, if `start`. Raises `DaemonError` when there is none
    (`NotRunningError`), or it cannot be used; what goes wrong later is an `RpcError` of the
    request.
    """
    path = user_socket(settings)
    stream = await (connect(settings, config, user=True) if start else connect_running(settings))
    if stream is None:
        raise NotRunningError(f"no daemon listens at {path}: there are no terminals")
    endpoint = Endpoint(stream, f"the daemon at {path}")
    front = Front(endpoint, settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(endpoint.run)
        try:
            await initialize(endpoint, "acpterm", asker.own())
            yield front
        finally:
            nursery.cancel_scope.cancel()
