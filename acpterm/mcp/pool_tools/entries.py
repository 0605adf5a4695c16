"""What the pool tools share: the parameters for one terminal, and its description in results."""

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
    """Return the terminal as the pool tools describe it; `session` has the command as words."""
    return pool_terminal(info, None if session is None else session.argv)
