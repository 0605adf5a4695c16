"""The work of `acpterm mcp`: serve one MCP client on stdin and stdout."""

import os
from contextlib import AbstractAsyncContextManager, suppress

from mcp.server.stdio import stdio_server
from msgspec import Struct

import acpterm
from acpterm.api.client import Client
from acpterm.api.questions import Asks
from acpterm.client.session_sockets.server_entry import CWD_VARIABLE, SOCKET_VARIABLE
from acpterm.config import Settings
from acpterm.mcp.invalid_lines import answering_invalid
from acpterm.mcp.server import create_server, initialization_options
from acpterm.mcp.tool_set_names import ToolSetName
from acpterm.mcp.tool_sets import policy_profile


class Options(Struct, kw_only=True):
    """The options of `acpterm mcp`: a set of tools, and an additional policy profile, if any."""

    tools: ToolSetName = "session"
    profile: str | None = None


async def serve(settings: Settings, options: Options) -> None:
    """Serve the client until it closes stdin. Then its terminals are ended."""
    if directory := os.environ.get(CWD_VARIABLE):
        # The agent may start its servers elsewhere, but paths are relative to this directory, that
        # of its session.
        with suppress(OSError):
            os.chdir(directory)
    cwd = os.getcwd()

    def connect(agent: str, asks: Asks | None) -> AbstractAsyncContextManager[Client]:
        return acpterm.connect(
            agent=agent,
            asks=asks,
            session="mcp",
            socket=os.environ.get(SOCKET_VARIABLE) or None,
            profile=policy_profile(options.tools, options.profile),
            settings=settings,
        )

    server = create_server(options.tools, settings, connect, cwd)
    try:
        async with (
            stdio_server() as (received, sent),
            answering_invalid(received, sent.send) as messages,
        ):
            await server.run(messages, sent, initialization_options(server))
    except* BrokenPipeError:
        pass  # the client has closed both pipes
