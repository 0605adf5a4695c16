"""Runs commands that need trio, and connects them to the daemon.

Other commands use `_daemon`, since the import of trio takes longer than a short command.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from acpterm.cli._daemon import note_questions
from acpterm.cli._options import fail, settings
from acpterm.client.user.client import UserClient, open_user_client
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import DaemonError
from acpterm.link.errors import root_error

T = TypeVar("T")


def run(work: Callable[..., Awaitable[T]], *args: Any, expected: tuple[type[Exception], ...]) -> T:
    """Run `work(*args)` with trio, and return the result.

    If `work` raises an exception of a type in `expected`, print the message of the exception and
    exit with status 1.
    """
    try:
        return trio.run(work, *args, strict_exception_groups=True)
    except* expected as errors:
        error = root_error(errors)
    # Do not exit in the block above: Python 3.11.2 prints a traceback if it raises SystemExit.
    return fail(error)


def call_async(
    config: str | None,
    socket: str | None,
    work: Callable[[UserClient], Awaitable[T]],
    *,
    start: bool = False,
) -> T:
    """Connect to the daemon, run `work` with the connection, and return the result of `work`.

    `config` and `socket` are the values of the options that `at_daemon` adds. With `start`, the
    daemon is started if it is not running. If the daemon cannot be used or a request fails, print
    the error and exit with status 1.
    """
    loaded = settings(config, socket=socket)

    async def connect_and_work() -> T:
        async with open_user_client(loaded, config, start=start) as client:
            note_questions(client.questions)
            return await work(client)

    return run(connect_and_work, expected=(DaemonError, RpcError))
