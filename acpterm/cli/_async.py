"""Runs commands that need trio, and connects them to the daemon.

Other commands use `_daemon`, since the import of trio takes longer than a short command.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import trio

from acpterm.cli._daemon import ChosenDaemon, note_questions
from acpterm.cli._options import fail
from acpterm.cli._output import echo
from acpterm.commands.client import UserClient, open_user_client
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import DaemonError
from acpterm.link.errors import root_error
from acpterm.runtime.threads import run_blocking

T = TypeVar("T")


def run(work: Callable[..., Awaitable[T]], *args: Any, expected: tuple[type[Exception], ...]) -> T:
    """Run `work(*args)` with trio; print an error of a type in `expected`, and exit with 1."""
    try:
        return trio.run(work, *args, strict_exception_groups=True)
    except* expected as errors:
        error = root_error(errors)
    # Do not exit in the block above: Python 3.11.2 prints a traceback if it raises SystemExit.
    return fail(error)


def call_async(
    daemon: ChosenDaemon, work: Callable[[UserClient], Awaitable[T]], *, start: bool = False
) -> T:
    """Do the same as `ChosenDaemon.call`, with trio."""
    loaded = daemon.settings()

    async def connect_and_work() -> T:
        async with open_user_client(loaded, daemon.config, start=start) as client:
            note_questions(client.questions)
            return await work(client)

    return run(connect_and_work, expected=(DaemonError, RpcError))


async def echo_async(text: str) -> None:
    """Print lines in a thread, so that Ctrl-C works while a slow reader blocks the write."""
    await run_blocking(partial(echo, text), abandon_on_cancel=True)
