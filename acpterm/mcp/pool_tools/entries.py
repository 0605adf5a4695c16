"""What the pool tools share: the params for one terminal, and its description."""

from typing import Annotated

from msgspec import Meta, Struct, field

from acpterm.acp.pool import PoolTerminal, pool_terminal
from acpterm.acp.user_api import TerminalInfo
from acpterm.mcp.sessions import Session


class TerminalParams(Struct, kw_only=True):
    """The parameters of a tool for one terminal."""

    terminal_id: Annotated[str, Meta(description="The id of the terminal")] = field(
        name="terminalId"
    )


def entry_of(info: TerminalInfo, session: Session | None) -> PoolTerminal:
    """Return the entry of a terminal; `session` is the agent's session with it, if it has one."""
    return pool_terminal(info, None if session is None else session.argv)
