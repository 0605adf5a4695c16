"""`promote_terminal`: make the user the owner of a terminal."""

from acpterm.acp.pool import PoolTerminal
from acpterm.mcp.call import Call
from acpterm.mcp.pool_tools.entries import TerminalParams, entry_of
from acpterm.mcp.tool import Reply, Tool, as_json


async def _execute(call: Call, params: TerminalParams) -> Reply:
    session = await call.get(params.terminal_id)
    entry = entry_of(await session.terminal.promote(), session)
    return Reply(text=as_json(entry), data=entry)


TOOL = Tool(
    name="promote_terminal",
    description=(
        "Promote a background terminal: it becomes visible, and the user's. You can still read "
        "it, but no longer kill it, and it does not time out. Use it when a dev server is ready."
    ),
    params=TerminalParams,
    result=PoolTerminal,
    execute=_execute,
    idempotent=True,
)
