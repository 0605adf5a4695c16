"""What commands have in common: the flags for settings, and how a command fails."""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

from acpterm.config import ConfigError, Settings, load

F = TypeVar("F", bound=Callable[..., Any])


def common(function: F) -> F:
    """Add the flags of every command that hosts terminals."""
    for option in (
        click.option("--config", metavar="FILE", help="Read the settings from FILE."),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            help="The least important messages to log on stderr.",
        ),
        click.option(
            "--log-format", type=click.Choice(["text", "json"]), help="How to log on stderr."
        ),
    ):
        function = option(function)
    return function


AGENT = click.argument(
    "agent", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- AGENT [ARG]…"
)
"""The agent's command, which ends a command line."""


def settings(config: str | None, **flags: object) -> Settings:
    """Put the settings together, or fail with what is wrong with them."""
    try:
        return load(config, flags=flags)
    except ConfigError as error:
        fail(str(error))


def fail(message: str, status: int = 1) -> NoReturn:
    """Say on stderr what is wrong, and exit."""
    click.echo(f"acpterm: {message}", err=True)
    raise SystemExit(status)
