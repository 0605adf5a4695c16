"""`kill_terminal`: end a background terminal of this agent.

A terminal that does not exist counts as killed. A terminal of the user cannot be killed, not even
if it was promoted during the call.
"""

from typing import Final

from msgspec import Struct

from acpterm.acp.user_api import TerminalInfo
from acpterm.api.errors import RequestError
from acpterm.mcp.call import Call
from acpterm.mcp.pool_tools.entries import TerminalParams
from acpterm.mcp.sessions import Session
from acpterm.mcp.tool import Reply, Tool, as_json
from acpterm.mcp.tool_error import ToolError

NOT_OWNED: Final = "Cannot kill visible or user-owned terminals"


class Killed(Struct, kw_only=True):
    """The result of `kill_terminal`."""

    terminated: bool
    id: str


async def _execute(call: Call, params: TerminalParams) -> Reply:
    killed = Killed(terminated=True, id=params.terminal_id)
    reply = Reply(text=as_json(killed), data=killed)
    session = await call.sessions.find(params.terminal_id)
    if session is None:
        return reply
    info = await _info(session)
    if info is not None and info.owner != "agent":
        raise ToolError(NOT_OWNED)
    if info is not None:
        try:
            await session.terminal.kill()
        except RequestError:
            info = await _info(session)
            if info is not None and info.owner != "agent":
                raise ToolError(NOT_OWNED) from None
            if info is not None:
                raise
    await call.sessions.remove(session)
    return reply


async def _info(session: Session) -> TerminalInfo | None:
    try:
        return await session.terminal.info()
    except RequestError:
        return None


TOOL = Tool(
    name="kill_terminal",
    description=(
        "Kill a background terminal owned by this agent. Cannot kill visible or user-owned "
        "terminals. Killing a terminal that does not exist succeeds."
    ),
    params=TerminalParams,
    result=Killed,
    execute=_execute,
    destructive=True,
    idempotent=True,
)
