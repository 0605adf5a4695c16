"""A terminal as a PTY pool describes it: for the pool's MCP tools, and for its WebSocket protocol.

What an agent can do with a terminal depends on the owner. Until a terminal that an agent spawned is
promoted, it has the owner `agent` and is described as not visible to the user; the user's commands,
such as `acpterm ls`, show it nevertheless. A terminal that was promoted, or that the user created,
has the owner `user` and is described as visible: an agent can read the terminal, but cannot kill
it.
"""

import shlex
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from acpterm.acp.user_api import TerminalInfo

NAME: Final = "pty-#"
"""The name that the pool requests for a terminal: the host replaces ``#`` by a number."""
HISTORY_BYTES: Final = 64 * 1024
"""Maximum bytes of output that the pool returns as the history of a terminal: the latest ones."""


class PoolTerminal(Struct, kw_only=True, omit_defaults=True):
    """A terminal as a PTY pool describes it.

    `command` is present only if an agent spawned the terminal.
    """

    id: Annotated[str, Meta(description="Unique terminal identifier")]
    cwd: Annotated[str, Meta(description="Working directory")]
    owner: Literal["user", "agent"]
    visible: Annotated[bool, Meta(description="Whether the terminal is visible to the user")]
    createdAt: Annotated[int, Meta(description="Unix timestamp in milliseconds")]  # noqa: N815
    command: list[str] | UnsetType = UNSET


def pool_terminal(info: TerminalInfo, argv: list[str] | None = None) -> PoolTerminal:
    """Return a pool's description; without `argv`, an agent's command line is split into words."""
    command: list[str] | UnsetType = UNSET
    if argv is not None:
        command = argv
    elif info.agent is not None or info.session_id is not None:
        command = _words(info.command)
    return PoolTerminal(
        id=info.name or info.terminal_id,
        cwd=info.cwd,
        owner="agent" if info.owner == "agent" else "user",
        visible=info.owner != "agent",
        createdAt=info.created_at,
        command=command,
    )


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return [line]
