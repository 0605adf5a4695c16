"""How a command asks the daemon, and what becomes of it when there is none."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from acpterm.cli._options import run, settings
from acpterm.client.daemon import DaemonError
from acpterm.client.user.client import Front, NotRunningError, open_front
from acpterm.client.user.events import GoneError
from acpterm.jsonrpc import RpcError

T = TypeVar("T")


def ask(
    config: str | None,
    socket: str | None,
    work: Callable[[Front], Awaitable[T]],
    *,
    start: bool = False,
) -> T:
    """Run `work` with a connection to the daemon, for a command that takes `at_daemon` flags.

    A daemon that is not running is started, if `start`. Fails with what is wrong: exit status 1.
    """
    chosen = settings(config, socket=socket)

    async def asking() -> T:
        async with open_front(chosen, config, start=start) as front:
            return await work(front)

    return run(asking, expected=(DaemonError, GoneError, RpcError))


def ask_running(
    config: str | None, socket: str | None, work: Callable[[Front], Awaitable[T]]
) -> T | None:
    """Run `work` with a connection to the daemon, as `ask` does; None if none runs."""
    chosen = settings(config, socket=socket)

    async def asking() -> T | None:
        try:
            async with open_front(chosen, config, start=False) as front:
                return await work(front)
        except NotRunningError:
            return None

    return run(asking, expected=(DaemonError, RpcError))
