"""`list_terminals`: list all running terminals that the agent can read."""

from msgspec import UNSET, Struct

from acpterm.acp.pool import PoolTerminal
from acpterm.mcp.call import Call
from acpterm.mcp.pool_tools.entries import entry_of
from acpterm.mcp.tool import Reply, Tool, as_json


class Params(Struct):
    """The parameters of `list_terminals`: none."""


class Terminals(Struct, kw_only=True):
    """The structured content of `list_terminals`."""

    terminals: list[PoolTerminal]


async def _execute(call: Call, params: Params) -> Reply:
    del params
    client = await call.sessions.client()
    known = {session.terminal.id: session for session in call.sessions.all()}
    entries = [
        entry_of(info, known.get(info.terminal_id))
        for info in await client.terminals()
        if info.exit_status is None or info.background is not UNSET
    ]
    return Reply(text=as_json(entries), data=Terminals(terminals=entries))


TOOL = Tool(
    name="list_terminals",
    description=(
        "List all terminal sessions with metadata: id, cwd, owner (user or agent), visible, "
        "createdAt, and the command of those that an agent spawned."
    ),
    params=Params,
    result=Terminals,
    execute=_execute,
    reads_only=True,
    idempotent=True,
)
