"""Runs commands that do several things at once, with trio. Imported by these commands alone."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from acpterm.cli._options import fail, settings
from acpterm.client.daemon import DaemonError
from acpterm.client.errors import root_error
from acpterm.client.user.client import UserClient, open_user_client
from acpterm.client.user.events import GoneError
from acpterm.jsonrpc import RpcError

T = TypeVar("T")


def run(work: Callable[..., Awaitable[T]], *args: Any, expected: tuple[type[Exception], ...]) -> T:
    """Run an async function with trio; fail with the message of an `expected` exception."""
    done: list[T] = []
    try:
        done.append(trio.run(work, *args, strict_exception_groups=True))
    except* expected as errors:
        fail(root_error(errors))
    return done[0]


def call_async(
    config: str | None,
    socket: str | None,
    work: Callable[[UserClient], Awaitable[T]],
    *,
    start: bool = False,
) -> T:
    """Run `work` with a connection to the daemon, for a command that takes `at_daemon` options.

    A daemon that is not running is started, if `start`. Fails with what is wrong: exit status 1.
    """
    chosen = settings(config, socket=socket)

    async def connected() -> T:
        async with open_user_client(chosen, config, start=start) as client:
            return await work(client)

    return run(connected, expected=(DaemonError, GoneError, RpcError))
