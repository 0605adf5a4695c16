"""`spawn_background_terminal`: start a program that runs in the background."""

from typing import Annotated

from msgspec import Meta, Struct

from acpterm.acp.pool import NAME, PoolTerminal
from acpterm.mcp.call import Call
from acpterm.mcp.pool_tools.entries import entry_of
from acpterm.mcp.sessions import Launch
from acpterm.mcp.tool import Reply, Tool, as_json
from acpterm.mcp.waiting import removed_on_failure

Words = Annotated[list[str], Meta(min_length=1)]


class Params(Struct, kw_only=True):
    """The parameters of `spawn_background_terminal`."""

    command: Annotated[Words, Meta(description="The program and its arguments")]
    cwd: Annotated[str | None, Meta(description="Working directory, an absolute path")] = None


async def _execute(call: Call, params: Params) -> Reply:
    program, *args = params.command
    session = await call.start(Launch(program, args, cwd=params.cwd, name=NAME))
    session.argv = params.command
    async with removed_on_failure(call, session):
        entry = entry_of(await session.terminal.info(), session)
    return Reply(text=as_json(entry), data=entry)


TOOL = Tool(
    name="spawn_background_terminal",
    description=(
        "Spawn a background terminal for a dev server, tests and the like. At most 3 in a minute "
        "and 5 at once; closed after 5 minutes without activity, unless promoted. Check "
        "list_terminals first for one that exists already."
    ),
    params=Params,
    result=PoolTerminal,
    execute=_execute,
    destructive=True,
)
