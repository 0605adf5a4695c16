"""How a command asks the daemon, and what becomes of it when there is none."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from acpterm.cli._options import run, settings
from acpterm.client.daemon import DaemonError
from acpterm.client.user.client import NotRunningError, UserClient, open_user_client
from acpterm.client.user.events import GoneError
from acpterm.jsonrpc import RpcError

T = TypeVar("T")


def call(
    config: str | None,
    socket: str | None,
    work: Callable[[UserClient], Awaitable[T]],
    *,
    start: bool = False,
) -> T:
    """Run `work` with a connection to the daemon, for a command that takes `at_daemon` flags.

    A daemon that is not running is started, if `start`. Fails with what is wrong: exit status 1.
    """
    chosen = settings(config, socket=socket)

    async def asking() -> T:
        async with open_user_client(chosen, config, start=start) as client:
            return await work(client)

    return run(asking, expected=(DaemonError, GoneError, RpcError))


def call_running(
    config: str | None, socket: str | None, work: Callable[[UserClient], Awaitable[T]]
) -> T | None:
    """Run `work` with a connection to the daemon, as `ask` does; None if none runs."""
    chosen = settings(config, socket=socket)

    async def asking() -> T | None:
        try:
            async with open_user_client(chosen, config, start=False) as client:
                return await work(client)
        except NotRunningError:
            return None

    return run(asking, expected=(DaemonError, RpcError))
