"""Options that several commands share, loading of the settings, and `fail`."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import click

from acpterm.config import ConfigError, Loaded, Settings, load_with_sources
from acpterm.jsonrpc import is_utf8_encodable

F = TypeVar("F", bound=Callable[..., Any])

config_option = click.option("--config", metavar="FILE", help="Read the settings from FILE.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds all of `options`; the first is the last in the help."""

    def add(function: F) -> F:
        for option in options:
            function = option(function)
        return function

    return add


# The options of commands that log.
common = together(
    config_option,
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        help="Lowest level of messages to log on stderr.",
    ),
    click.option(
        "--log-format", type=click.Choice(["text", "json"]), help="Format of the log on stderr."
    ),
)


def settings(config: str | None, **flags: object) -> Settings:
    """Load the settings, with the options `flags`; fail if they are invalid."""
    found = loaded(config, flags=flags).settings
    if "socket" in flags:
        from acpterm.link.daemon import note_other_daemon  # noqa: PLC0415  only for the daemon

        note_other_daemon(found.socket)
    return found


def loaded(config: str | None, *, flags: Mapping[str, object] | None = None) -> Loaded:
    """Like `settings`, with the source of each setting."""
    try:
        return load_with_sources(config, None, flags)
    except ConfigError as error:
        fail(str(error))


def require_user(config: str | None = None, does: str = "changes these settings") -> None:
    """Exit with an error message if this process is or may be in an agent's terminal."""
    from acpterm.commands.only_users import NotTheUserError, check_user  # noqa: PLC0415  few commands need it

    try:
        check_user(config, does)
    except NotTheUserError as error:
        fail(str(error))


def absolute(path: str | None = None) -> str:
    """Return the absolute path of `path`, or of the current directory; fail if that is removed."""
    try:
        return os.path.abspath(path or ".")
    except OSError as error:
        fail(f"the current directory cannot be found: {error.strerror}; change to another one")


def check_utf8(*words: str | None) -> None:
    """Fail if one of the words is not UTF-8, and so cannot be sent."""
    for word in words:
        if word is not None and not is_utf8_encodable(word):
            fail(f"{word!r} is not UTF-8: it cannot be sent to the daemon")


def fail(message: str, status: int = 1) -> NoReturn:
    """Print an error message on stderr, and exit with `status`."""
    click.echo(f"acpterm: {message}", err=True)
    raise SystemExit(status)
