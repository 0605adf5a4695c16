"""`KillShell`: end a background shell."""

from typing import Annotated

from msgspec import Meta, Struct

from acpterm.mcp.call import Call
from acpterm.mcp.tool import Reply, Tool, as_json


class Params(Struct, kw_only=True):
    """The parameters of `KillShell`."""

    shell_id: Annotated[str, Meta(description="The ID of the background shell to kill")]


class Killed(Struct, kw_only=True):
    """The result of `KillShell`."""

    message: str
    shell_id: str


async def _execute(call: Call, params: Params) -> Reply:
    if await call.starts.withdraw(params.shell_id):
        withdrawn = Killed(
            message=f"Successfully killed shell: {params.shell_id}", shell_id=params.shell_id
        )
        state = "[not started: the question to the user was withdrawn]"
        return Reply(state=state, text=as_json(withdrawn), data=withdrawn)
    session = await call.get(params.shell_id)
    await call.sessions.stop(session)
    killed = Killed(
        message=f"Successfully killed shell: {session.id} ({session.command})",
        shell_id=session.id,
    )
    return Reply(text=as_json(killed), data=killed)


TOOL = Tool(
    name="KillShell",
    description="Kills a running background bash shell by its ID.",
    params=Params,
    result=Killed,
    execute=_execute,
    destructive=True,
)
