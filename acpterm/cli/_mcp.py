"""The options of the MCP server that `proxy --mcp` and `prompt --mcp` add to sessions."""

import os

import click

from acpterm.client.session_sockets.server_entry import McpOptions


def mcp_options(
    agent: tuple[str, ...], tools: str | None, config: str | None, profile: str | None, *, mcp: bool
) -> McpOptions | None:
    """Return the options of the MCP server that `--mcp` adds to sessions; None without `--mcp`.

    `agent` is the agent's command line. The other parameters are the values of the options
    `--tools`, `--config`, `--profile` and `--mcp`.
    Raises `click.UsageError` if `--tools` is given without `--mcp`, or `--tools pool` without
    `--profile`.
    """
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
