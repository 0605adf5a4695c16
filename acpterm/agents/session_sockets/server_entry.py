"""The entry for `acpterm mcp` in `mcpServers`, which is added to a session of an agent.

See ACP v1, "MCP Servers". The entries of the editor are kept. If an entry runs `acpterm mcp`
already, no second entry is added. If another proxy, between the editor and this one, has put the
path of a socket into that entry, the entry is not changed. Otherwise the entry gets the path of the
session's socket.
"""

import os
import sys
from typing import Any, Final, NamedTuple

from msgspec import Raw

from acpterm.acp.raw_json import items, members, text

SOCKET_VARIABLE: Final = "ACPTERM_MCP_SOCKET"
"""The environment variable that has the path of the session's socket, for `acpterm mcp`."""
CWD_VARIABLE: Final = "ACPTERM_MCP_CWD"
"""The environment variable that has the directory of the session, for `acpterm mcp`."""
_NAME: Final = "acpterm"
# Variables that are added to the entry, since MCP clients start servers with few variables. With
# them, the server reads the same settings as this process.
_PASSED_ON: Final = ("ACPTERM_CONFIG", "XDG_CONFIG_HOME")


class McpOptions(NamedTuple):
    """The options of `proxy --mcp` and `prompt --mcp`."""

    tools: str = "session"
    """The set of tools that `acpterm mcp` offers (`--tools`)."""
    config: str | None = None
    """The path of the settings file given on the command line, if any."""
    profile: str | None = None
    """The profile of the agent's terminals, if the user has chosen one."""


def with_server(
    servers: Raw | None, options: McpOptions, path: str, cwd: str | None, *, is_v2: bool
) -> list[Any]:
    """Return the entries `servers` of a session's `mcpServers`, with an entry for `acpterm mcp`.

    The server gets the path of the session's socket and, if known, the session's directory.
    """
    given = items(servers)
    variables = [{"name": SOCKET_VARIABLE, "value": path}]
    if cwd is not None:
        variables.append({"name": CWD_VARIABLE, "value": cwd})
    for at, server in enumerate(given):
        if _runs_acpterm(server):
            return [*given[:at], _bound(server, variables), *given[at + 1 :]]
    names = {text(members(server).get("name")) for server in given}
    entry: dict[str, Any] = {
        "name": next(name for name in _names() if name not in names),
        "command": sys.executable,
        "args": ["-P", "-m", "acpterm", "mcp", *_arguments(options)],
        "env": [
            *variables,
            *(
                {"name": name, "value": os.environ[name]}
                for name in _PASSED_ON
                if name in os.environ
            ),
        ],
    }
    return [*given, {"type": "stdio", **entry} if is_v2 else entry]


def _names() -> Any:
    yield _NAME
    yield from (f"{_NAME}-{number}" for number in range(2, sys.maxsize))


def _arguments(options: McpOptions) -> list[str]:
    found = ["--tools", options.tools] if options.tools != "session" else []
    if options.config is not None:
        found += ["--config", os.path.abspath(options.config)]
    if options.profile is not None:
        found += ["--profile", options.profile]
    return found


def _runs_acpterm(server: Raw) -> bool:
    fields = members(server)
    words = [text(fields.get("command")), *map(text, items(fields.get("args")))]
    names = [os.path.basename(word or "") for word in words]
    return "mcp" in words and bool({"acpterm", "acpterm.pyz"} & set(names[: names.index("mcp")]))


def _bound(server: Raw, variables: list[dict[str, str]]) -> Any:
    """Add `variables` to the entry's environment, unless it has the path of a socket already."""
    fields = members(server)
    env = items(fields.get("env"))
    if any(text(members(one).get("name")) == SOCKET_VARIABLE for one in env):
        return server
    return {**fields, "env": [*env, *variables]}
