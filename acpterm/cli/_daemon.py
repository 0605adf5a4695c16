"""Connects a command to the daemon and sends the command's requests, without trio.

`_async` does the same for commands that need trio. The parameters `config` and `socket` are the
values of the options that `at_daemon` adds.
"""

import os
from collections.abc import Callable, Iterable
from typing import Final, NoReturn, TypeVar

import click

from acpterm.acp.base import Wire
from acpterm.acp.user_api import UserTerminalRequest
from acpterm.cli._options import fail, settings
from acpterm.client.sanitize import one_line
from acpterm.client.user.blocking_client import BlockingClient, open_blocking_client
from acpterm.client.user.format import waiting_questions
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import DaemonError, NotRunningError

T = TypeVar("T")

# Maximum characters of an error message, since it may quote an argument of any length.
_MESSAGE_MAX: Final = 2000
_SHOWS_QUESTIONS: Final = ("approvals", "approve", "deny", "status")


class _Any(Wire):
    """The result of any method, for a caller that does not need its members."""


def call(
    config: str | None,
    socket: str | None,
    work: Callable[[BlockingClient], T],
    *,
    start: bool = False,
) -> T:
    """Connect to the daemon, run `work` with the connection, and return the result of `work`.

    With `start`, the daemon is started if it is not running. If the daemon cannot be used or a
    request fails, print the error and exit with status 1.
    """
    loaded = settings(config, socket=socket)
    try:
        with open_blocking_client(loaded, config, start=start) as client:
            note_questions(client.questions)
            return work(client)
    except (DaemonError, RpcError) as error:
        fail(str(error))


def call_running(
    config: str | None, socket: str | None, work: Callable[[BlockingClient], T]
) -> T | None:
    """Run `work` with a connection to the daemon, and return the result of `work`.

    If no daemon runs, start none, and return None. If the daemon cannot be used or a request fails,
    print the error and exit with status 1.
    """
    loaded = settings(config, socket=socket)
    try:
        with open_blocking_client(loaded, config, start=False) as client:
            note_questions(client.questions)
            return work(client)
    except NotRunningError:
        return None
    except (DaemonError, RpcError) as error:
        fail(str(error))


def note_questions(count: int) -> None:
    """Say on stderr, if it is a terminal, that questions wait for the user."""
    context = click.get_current_context(silent=True)
    shows_them = context is not None and context.info_name in _SHOWS_QUESTIONS
    if count and not shows_them and os.isatty(2):
        click.echo(f"acpterm: {waiting_questions(count)}: acpterm approvals -f", err=True)


def call_each(
    config: str | None, socket: str | None, method: str, terminals: Iterable[str]
) -> NoReturn:
    """Send one request for each terminal, print the errors, and exit.

    The method of the requests is `_acpterm/terminal/` followed by `method`, such as `release`. The
    exit status is 1 if a request failed, else 0.
    """
    end(call(config, socket, lambda client: failures(client, method, terminals)))


def failures(client: BlockingClient, method: str, terminals: Iterable[str]) -> list[str]:
    """Send a request for each terminal; return the error messages of the requests that failed.

    The requests call `_acpterm/terminal/` followed by `method`, such as `release`. The error
    messages are in the order of `terminals`.
    """
    requests = [UserTerminalRequest(name) for name in dict.fromkeys(terminals)]
    errors = {
        index: response.message
        for index, response in client.call_each(f"terminal/{method}", requests, _Any)
        if isinstance(response, RpcError)
    }
    return [errors[index] for index in sorted(errors)]


def end(failures: Iterable[str], status: int = 1) -> NoReturn:
    """Print the error messages `failures`, and exit.

    The exit status is `status` if there are any messages, else 0.
    """
    failed = False
    for message in failures:
        click.echo(f"acpterm: {one_line(message, _MESSAGE_MAX)}", err=True)
        failed = True
    raise SystemExit(status if failed else 0)
