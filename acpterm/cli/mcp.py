"""`acpterm mcp`: serve the MCP client that spawned it, on stdin and stdout."""

import os

import click

from acpterm.cli._options import common, fail, settings
from acpterm.mcp.tool_set_names import TOOL_SET_NAMES, ToolSetName


@click.command("mcp")
@click.option(
    "--tools",
    type=click.Choice(TOOL_SET_NAMES),
    default="session",
    show_default=True,
    help="Which tools to provide.",
)
@click.option(
    "--profile",
    metavar="NAME",
    help="Additional profile of the policy: the stricter decision applies.",
)
@click.option("--socket", metavar="PATH", help="Use the daemon that listens at PATH.")
@common
def command(
    *,
    tools: ToolSetName,
    profile: str | None,
    socket: str | None,
    config: str | None,
    **flags: object,
) -> None:
    """Serve the MCP client that spawned acpterm, on stdin and stdout.

    The client's agent gets terminals as tools. The daemon, which is started if it is not running,
    runs their programs under the user's policy. When stdin ends, these programs are killed. Logs go
    to stderr.
    """
    flags["log_level"] = flags["log_level"] or "warning"
    chosen = settings(config, socket=socket, **flags)
    import anyio  # noqa: PLC0415  --help starts faster

    from acpterm.mcp.run import Options, serve  # noqa: PLC0415

    if tools != "pool":
        # The daemon has settings of its own, and takes from this variable only what is stricter.
        # The set `pool` has a profile already, which a requested one would replace.
        profile = profile or os.environ.get("ACPTERM_PROFILE")
    try:
        anyio.run(serve, chosen, Options(tools=tools, profile=profile))
    except OSError as error:
        fail(str(error))
