"""What commands have in common: options for settings, and how a command fails."""

import shlex
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


class BeforeAgent(click.Command):
    """A command whose line ends with ``-- AGENT ARG…``, which its function is given as `agent`.

    What comes after the first ``--`` is the agent's: nothing in it is an option of ours.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the agent's command off the line."""
        if "--" not in args and not ctx.resilient_parsing:
            self._check_separator(ctx, args)
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        agent = tuple(args[at + 1 :])
        if not agent and not ctx.resilient_parsing:  # as when a shell completes the line
            raise click.UsageError("say which agent: end the line with -- AGENT ARG…", ctx)
        ctx.params["agent"] = agent
        return rest

    def _check_separator(self, ctx: click.Context, args: list[str]) -> None:
        """Raise `click.UsageError` for an agent's command without ``--`` before it."""
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = False
        try:
            _, agent, _ = parser.parse_args(list(args))
            if agent and agent[0].startswith("-"):
                # Options behind TEXT are ours, too. The parser takes the word after them for TEXT:
                # what is added stands in for it, so that as many are left as the agent has.
                _, rest, _ = parser.parse_args([*agent, "AGENT"])
                agent = agent[len(agent) - len(rest) :]
        except click.UsageError:
            return  # an option before the agent's command is wrong
        if agent:
            ours = shlex.join(args[: len(args) - len(agent)])
            line = " ".join(filter(None, (ctx.command_path, ours, "--", shlex.join(agent))))
            raise click.UsageError(f"put -- before the agent's command: {line}", ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Give what the usage line shows."""
        return [*super().collect_usage_pieces(ctx), "-- AGENT [ARG]…"]


def hosted(function: F) -> F:
    """Add the flags of every command that gives an agent terminals of a host."""
    for option in (
        click.option("--log", metavar="FILE", help="Write every message to FILE, one a line."),
        click.option("--socket", metavar="PATH", help="Use the daemon that listens at PATH."),
        click.option(
            "--embedded", is_flag=True, help="Keep the terminals in this process: no daemon."
        ),
    ):
        function = option(function)
    return function


def at_daemon(function: F) -> F:
    """Add the flags of every command that asks the daemon."""
    for option in (
        click.option("--config", metavar="FILE", help="Read the settings from FILE."),
        click.option(
            "--socket", metavar="PATH", help="Use the daemon that listens for agents at PATH."
        ),
    ):
        function = option(function)
    return function


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
