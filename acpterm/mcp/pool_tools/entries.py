"""A terminal as the pool tools describe it, and as JSON text.

Ownership decides what an agent can do: a terminal that it spawned is its own (`agent`) and not
visible, until it is promoted. Then, and if the user created it, it belongs to the user (`user`) and
is visible: the agent can read it, and cannot kill it.
"""

import shlex
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from acpterm.acp.user_api import TerminalInfo
from acpterm.mcp.sessions import Session

NAME: Final = "pty-#"


class TerminalParams(Struct, kw_only=True):
    """The parameters of a tool for one terminal."""

    terminal_id: Annotated[str, Meta(description="The id of the terminal")] = field(
        name="terminalId"
    )


class Entry(Struct, kw_only=True, omit_defaults=True):
    """A terminal. `command` is present if an agent spawned it."""

    id: Annotated[str, Meta(description="Unique terminal identifier")]
    cwd: Annotated[str, Meta(description="Working directory")]
    owner: Literal["user", "agent"]
    visible: Annotated[bool, Meta(description="Whether the terminal is visible to the user")]
    createdAt: Annotated[int, Meta(description="Unix timestamp in milliseconds")]  # noqa: N815
    command: list[str] | UnsetType = UNSET


def entry_of(info: TerminalInfo, session: Session | None) -> Entry:
    """Return the entry of a terminal; `session` is the agent's session with it, if it has one."""
    command: list[str] | UnsetType = UNSET
    if session is not None and session.argv is not None:
        command = session.argv
    elif info.agent is not None or info.session_id is not None:
        command = _words(info.command)
    return Entry(
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
