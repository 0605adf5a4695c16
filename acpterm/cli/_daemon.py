"""Connects a command to the daemon and sends the command's requests, without trio.

`_async` does the same for commands that need trio.
"""

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import click

from acpterm.acp.base import Wire
from acpterm.acp.user_api import UserTerminalRequest
from acpterm.cli._options import config_option, fail, settings, together
from acpterm.commands.blocking_client import BlockingClient, open_blocking_client
from acpterm.commands.format import waiting_questions
from acpterm.config import Settings
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import DaemonError, NotRunningError
from acpterm.link.session import W
from acpterm.runtime.sanitize import one_line

T = TypeVar("T")

# Maximum characters of an error message, since it may quote an argument of any length.
_MESSAGE_MAX: Final = 2000
# For a command that needs no daemon: one that hangs must not stop it.
SHORT_ANSWER_TIMEOUT_S: Final = 1.0
_SHOWS_QUESTIONS: Final = ("approvals", "approve", "deny", "status")


class _Any(Wire):
    """The result of any method, for a caller that does not need its members."""


class ChosenDaemon(NamedTuple):
    """The daemon that the options choose. Its methods fail if it, or a request, fails."""

    config: str | None
    socket: str | None

    def settings(self) -> Settings:
        return settings(self.config, socket=self.socket)

    def call(self, work: Callable[[BlockingClient], T], *, start: bool = False) -> T:
        """Connect and return the result of `work`; with `start`, start the daemon if need be."""
        try:
            return self._call(work, start=start)
        except NotRunningError as error:
            fail(str(error))

    def request(self, method: str, params: Wire, into: type[W], *, start: bool = False) -> W:
        return self.call(lambda client: client.call(method, params, into), start=start)

    def terminal_request(self, method: str, terminal: str, into: type[W]) -> W:
        return self.request(f"terminal/{method}", UserTerminalRequest(terminal), into)

    def call_running(self, work: Callable[[BlockingClient], T]) -> T | None:
        """Return the result of `work`; None, and start no daemon, if none runs."""
        try:
            return self._call(work, start=False)
        except NotRunningError:
            return None

    def request_running(self, method: str, params: Wire, into: type[W]) -> W | None:
        return self.call_running(lambda client: client.call(method, params, into))

    def _call(self, work: Callable[[BlockingClient], T], *, start: bool) -> T:
        loaded = self.settings()
        try:
            with open_blocking_client(loaded, self.config, start=start) as client:
                note_questions(client.questions)
                return work(client)
        except NotRunningError:
            raise
        except (DaemonError, RpcError) as error:
            fail(str(error))


def _existing(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    if path is None or os.path.lexists(path):
        return path
    raise click.BadParameter(
        f"no daemon listens at {path!r}: acpterm serve --socket {shlex.quote(path)} starts one",
        ctx,
        param,
    )


_options = together(
    config_option,
    click.option(
        "--socket",
        metavar="PATH",
        # A daemon started at a mistyped path would have none of the user's terminals.
        callback=_existing,
        help="Use the daemon that listens for agents at PATH.",
    ),
)


def at_daemon(function: Callable[..., T]) -> Callable[..., T]:
    """Add `--config` and `--socket`, which become the parameter `daemon`."""

    @wraps(function)
    def with_daemon(*, config: str | None, socket: str | None, **values: Any) -> T:
        return function(daemon=ChosenDaemon(config, socket), **values)

    return _options(with_daemon)


def check_page() -> None:
    """Fail if the page was not built: its address would show nothing."""
    from acpterm.runtime.extras import BUILD_PAGE, page_is_built  # noqa: PLC0415  for two commands

    if not page_is_built():
        fail(f"the page was not built: {BUILD_PAGE}")


def note_questions(count: int) -> None:
    """Say on stderr, if it is a terminal, that questions wait for the user."""
    context = click.get_current_context(silent=True)
    shows_them = context is not None and context.info_name in _SHOWS_QUESTIONS
    if count and not shows_them and os.isatty(2):
        click.echo(f"acpterm: {waiting_questions(count)}: acpterm approvals -f", err=True)


def note_questions_of(loaded: Settings) -> None:
    """Do the same in a command that needs no daemon, if one runs and this is the user."""
    if os.isatty(2):
        with (
            suppress(DaemonError, RpcError),
            open_blocking_client(
                loaded, start=False, answer_timeout_s=SHORT_ANSWER_TIMEOUT_S
            ) as client,
        ):
            note_questions(client.questions)


def release(client: BlockingClient, terminals: Iterable[str]) -> list[str]:
    requests = [UserTerminalRequest(name) for name in dict.fromkeys(terminals)]
    return failures(client, "terminal/release", requests)


def failures(client: BlockingClient, method: str, requests: Sequence[Wire]) -> list[str]:
    """Send the requests; return the error messages of those that failed, in their order."""
    errors = {
        index: response.message
        for index, response in client.call_each(method, requests, _Any)
        if isinstance(response, RpcError)
    }
    return [errors[index] for index in sorted(errors)]


def end(failures: Iterable[str]) -> NoReturn:
    """Print these error messages, and exit: with status 1 if there are any."""
    failed = False
    for message in failures:
        click.echo(f"acpterm: {one_line(message, _MESSAGE_MAX)}", err=True)
        failed = True
    raise SystemExit(1 if failed else 0)
