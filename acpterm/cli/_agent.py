"""What `proxy` and `prompt` share: ``-- AGENT ARG…``, and the options of the agent's terminals."""

import os
import shlex
from collections.abc import Mapping, Sequence

import click

from acpterm.agents.acp_registry import start_of
from acpterm.agents.session_sockets.server_entry import McpOptions
from acpterm.cli._options import together
from acpterm.config import Settings
from acpterm.mcp.tool_set_names import TOOL_SET_NAMES


class BeforeAgent(click.Command):
    """A command whose command line ends with ``-- AGENT ARG…``, the parameter `agent`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" not in args and not ctx.resilient_parsing:
            self._check_separator(ctx, args)
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        agent = tuple(args[at + 1 :])
        named = ctx.params["agent_id"] is not None
        # A conductor runs the agent. But a user who tries the command line has forgotten it.
        is_in_chain = self.name == "proxy" and "--" not in args and not os.isatty(0)
        is_missing = not agent and not named and not is_in_chain
        if (is_missing or (agent and named)) and not ctx.resilient_parsing:  # set by completion
            raise click.UsageError(
                "say which agent once: --agent ID, or -- AGENT"
                if named
                else "say which agent: end the line with -- AGENT ARG…, or use --agent ID",
                ctx,
            )
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
        return [*super().collect_usage_pieces(ctx), "[-- AGENT [ARG]…]"]


hosted = together(
    click.option("--agent", "agent_id", metavar="ID", help="Start this agent of acpterm agents."),
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
        "--embedded", is_flag=True, help="Host the terminals in this process, without a daemon."
    ),
)


def start_agent(
    words: Sequence[str], name: str | None, settings: Settings
) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return an agent's command, and the variables to add. Raises `RegistryError`."""
    if name is None:
        return words, {}
    way = start_of(settings.registry, name)
    return way.command, way.env


def mcp_options(
    agent: Sequence[str], tools: str | None, config: str | None, profile: str | None, *, mcp: bool
) -> McpOptions | None:
    """Return the options of the MCP server that `--mcp` adds to sessions; None without `--mcp`."""
    if not mcp:
        if tools is not None:
            raise click.UsageError("--tools are those of --mcp: add --mcp")
        return None
    if tools == "pool" and profile is None:
        raise click.UsageError("--tools pool needs the limits of its profile: add --profile pool")
    if any(os.path.basename(word).partition("@")[0] == "copilot" for word in agent):
        why = "Copilot CLI ignores the MCP servers of a session: use acpterm setup copilot"
        click.echo(f"acpterm: {why}", err=True)
    return McpOptions(tools or "session", config, profile)
