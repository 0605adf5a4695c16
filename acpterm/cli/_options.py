"""Options that several commands share, loading of the settings, and `fail`."""

import os
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import click

from acpterm.config import ConfigError, Loaded, Settings, load_with_sources

F = TypeVar("F", bound=Callable[..., Any])


def common(function: F) -> F:
    """Add `--config`, `--log-level` and `--log-format`, the options of commands that log."""
    for option in (
        click.option("--config", metavar="FILE", help="Read the settings from FILE."),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            help="Lowest level of messages to log on stderr.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            help="Format of the log on stderr.",
        ),
    ):
        function = option(function)
    return function


class BeforeAgent(click.Command):
    """A command whose command line ends with ``-- AGENT ARG…``, the command that runs an agent.

    The command's function gets AGENT and its arguments as `agent`. None of the words after the
    first ``--`` is an option of acpterm.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line `args`, which ends with ``-- AGENT ARG…``.

        The words after ``--`` become the parameter `agent`. Like click's own method, return the
        words that no parameter takes. Raises `click.UsageError` if there is no agent's command.
        """
        if "--" not in args and not ctx.resilient_parsing:
            self._check_separator(ctx, args)
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        agent = tuple(args[at + 1 :])
        if not agent and not ctx.resilient_parsing:  # a shell that completes the line sets this
            raise click.UsageError("say which agent: end the line with -- AGENT ARG…", ctx)
        ctx.params["agent"] = agent
        return rest

    def _check_separator(self, ctx: click.Context, args: list[str]) -> None:
        """Raise `click.UsageError` if `args` has an agent's command without ``--`` before it."""
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = False
        try:
            _, agent, _ = parser.parse_args(list(args))
            if agent and agent[0].startswith("-"):
                # Options of acpterm may follow TEXT: parse them too. This time the parser takes the
                # agent's program for TEXT, and removes it. The appended word makes up for that, so
                # `rest` has as many words as the agent's command.
                _, rest, _ = parser.parse_args([*agent, "AGENT"])
                agent = agent[len(agent) - len(rest) :]
        except click.UsageError:
            return  # an option before the agent's command is invalid: the real parser reports it
        if agent:
            own = shlex.join(args[: len(args) - len(agent)])
            line = " ".join(filter(None, (ctx.command_path, own, "--", shlex.join(agent))))
            raise click.UsageError(f"put -- before the agent's command: {line}", ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of the help's usage line, with the agent's command at the end."""
        return [*super().collect_usage_pieces(ctx), "-- AGENT [ARG]…"]


def hosted(function: F) -> F:
    """Add the options of `proxy` and `prompt` that concern the agent's terminals.

    `--socket`, `--embedded` and `--profile` choose the host and the profile, `--mcp` and `--tools`
    add an MCP server, and `--log` writes all messages to a file.
    """
    from acpterm.mcp.tool_set_names import TOOL_SET_NAMES  # noqa: PLC0415  few commands need it

    for option in (
        click.option(
            "--tools",
            type=click.Choice(TOOL_SET_NAMES),
            help="Which tools --mcp provides.  [default: session]",
        ),
        click.option(
            "--mcp", is_flag=True, help="Give the agent terminals as tools of an MCP server, too."
        ),
        click.option("--log", metavar="FILE", help="Write every message to FILE, one per line."),
        click.option("--socket", metavar="PATH", help="Use the daemon that listens at PATH."),
        click.option(
            "--profile",
            metavar="NAME",
            help="Profile of the agent's terminals.  [default: that of the settings]",
        ),
        click.option(
            "--embedded",
            is_flag=True,
            help="Host the terminals in this process, without a daemon.",
        ),
    ):
        function = option(function)
    return function


def _existing(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    if path is None or os.path.lexists(path):
        return path
    raise click.BadParameter(
        f"no daemon listens at {path!r}: acpterm serve --socket {shlex.quote(path)} starts one",
        ctx,
        param,
    )


def at_daemon(function: F) -> F:
    """Add `--config` and `--socket`, the options of the commands that act on a daemon."""
    for option in (
        click.option("--config", metavar="FILE", help="Read the settings from FILE."),
        click.option(
            "--socket",
            metavar="PATH",
            # A daemon started at a mistyped path would have none of the user's terminals.
            callback=_existing,
            help="Use the daemon that listens for agents at PATH.",
        ),
    ):
        function = option(function)
    return function


def settings(config: str | None, **flags: object) -> Settings:
    """Load the settings; if they are invalid, print an error message and exit with status 1.

    `config` is the path of the settings file given on the command line, if any. `flags` are
    settings given as options, which override the file and the environment; None means not given.
    """
    found = loaded(config, flags=flags).settings
    if "socket" in flags:
        from acpterm.link.daemon import note_other_daemon  # noqa: PLC0415  only for the daemon

        note_other_daemon(found.socket)
    return found


def loaded(
    config: str | None,
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Like `settings`, with the source of each setting; `environ` is by default this process's."""
    try:
        return load_with_sources(config, environ, flags)
    except ConfigError as error:
        fail(str(error))


def require_user(config: str | None = None) -> None:
    """Exit with an error message if this process is or may be in an agent's terminal.

    A running daemon decides this, if there is one (see `client.user.only_users`). `config` is the
    path of the settings file given on the command line, if any: it says where the daemon listens.
    """
    from acpterm.client.user.only_users import (  # noqa: PLC0415  few commands need it
        NotTheUserError,
        check_user,
    )

    try:
        check_user(config)
    except NotTheUserError as error:
        fail(str(error))


def absolute(path: str | None = None) -> str:
    """Return the absolute path of `path`, or of the current directory; fail if that is removed."""
    try:
        return os.path.abspath(path or ".")
    except OSError as error:
        fail(f"the current directory cannot be found: {error.strerror}; change to another one")


def fail(message: str, status: int = 1) -> NoReturn:
    """Print an error message on stderr, and exit with `status`."""
    click.echo(f"acpterm: {message}", err=True)
    raise SystemExit(status)
