"""Requests of commands to the daemon: about one terminal, or about several at once."""

from collections.abc import Callable, Iterable
from typing import Final, NoReturn, TypeVar

import click

from acpterm.acp.base import Wire
from acpterm.acp.user_api import UserTerminalRequest
from acpterm.cli._options import fail, settings
from acpterm.client.daemon import DaemonError, NotRunningError
from acpterm.client.sanitize import one_line
from acpterm.client.user.blocking_client import BlockingClient, open_blocking_client
from acpterm.jsonrpc import RpcError

T = TypeVar("T")

# Characters of a message, which may quote what was asked for.
_MESSAGE_MAX: Final = 2000


class _Any(Wire):
    """An answer of which no member is used."""


def call(
    config: str | None,
    socket: str | None,
    work: Callable[[BlockingClient], T],
    *,
    start: bool = False,
    answer_timeout_s: float | None = None,
) -> T:
    """Run `work` with a connection to the daemon, for a command that takes `at_daemon` options.

    A daemon that is not running is started, if `start`. Fails with what is wrong: exit status 1.
    """
    chosen = settings(config, socket=socket)
    try:
        with open_blocking_client(
            chosen, config, start=start, answer_timeout_s=answer_timeout_s
        ) as client:
            return work(client)
    except (DaemonError, RpcError) as error:
        fail(str(error))


def call_running(
    config: str | None, socket: str | None, work: Callable[[BlockingClient], T]
) -> T | None:
    """Run `work` with a connection to the daemon, as `call` does; None if none runs."""
    chosen = settings(config, socket=socket)
    try:
        with open_blocking_client(chosen, config, start=False) as client:
            return work(client)
    except NotRunningError:
        return None
    except (DaemonError, RpcError) as error:
        fail(str(error))


def call_each(
    config: str | None, socket: str | None, method: str, terminals: Iterable[str]
) -> NoReturn:
    """Send a request about each terminal; exits, with 1 after printing which failed."""
    end(call(config, socket, lambda client: failures(client, method, terminals)))


def failures(client: BlockingClient, method: str, terminals: Iterable[str]) -> list[str]:
    """Send a request about each terminal; return the messages of those that fail, in order."""
    requests = [UserTerminalRequest(name) for name in dict.fromkeys(terminals)]
    errors = {
        at: answer.message
        for at, answer in client.call_each(f"terminal/{method}", requests, _Any)
        if isinstance(answer, RpcError)
    }
    return [errors[at] for at in sorted(errors)]


def end(failures: Iterable[str], status: int = 1) -> NoReturn:
    """Print what went wrong, and exit: with `status` if anything did, else with 0."""
    failed = False
    for message in failures:
        click.echo(f"acpterm: {one_line(message, _MESSAGE_MAX)}", err=True)
        failed = True
    raise SystemExit(status if failed else 0)
