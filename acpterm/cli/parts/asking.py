"""How a command asks a daemon that need not be there: without one there are no terminals."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from acpterm.cli.parts.options import run, settings
from acpterm.client.daemon import DaemonError
from acpterm.client.person.front import Front, NotRunningError, open_front
from acpterm.client.person.watching import GoneError
from acpterm.host import logs
from acpterm.jsonrpc import RpcError

T = TypeVar("T")


def ask_running(
    config: str | None, socket: str | None, work: Callable[[Front], Awaitable[T]]
) -> T | None:
    """Run `work` with a connection to the daemon, as `ask` does; None if none runs."""
    chosen = settings(config, socket=socket)
    logs.configure("warning", "text")

    async def asking() -> T | None:
        try:
            async with open_front(chosen, config, start=False) as front:
                return await work(front)
        except NotRunningError:
            return None

    return run(asking, expected=(DaemonError, RpcError))


def watch(config: str | None, socket: str | None, work: Callable[[Front], Awaitable[int]]) -> int:
    """Run `work`, which watches, with a connection to the daemon, which is started: its status.

    Fails (exit status 1) when the daemon ends.
    """
    chosen = settings(config, socket=socket)
    logs.configure("warning", "text")

    async def watching() -> int:
        async with open_front(chosen, config) as front:
            return await work(front)

    return run(watching, expected=(DaemonError, GoneError, RpcError))
