"""`terminal_stop`: end a session with its programs, or withdraw a pending start."""

from typing import Annotated

from msgspec import Meta, Struct, field

from acpterm.mcp.call import Call
from acpterm.mcp.tool import Reply, Tool


class Params(Struct, kw_only=True):
    """The parameters of `terminal_stop`."""

    session_id: Annotated[str, Meta(description="The terminal session ID to terminate")] = field(
        name="sessionId"
    )


class Stopped(Struct, kw_only=True):
    """The structured content of `terminal_stop`."""

    id: str
    status: Annotated[str, Meta(description="what was ended")]
    terminated: bool


async def _execute(call: Call, params: Params) -> Reply:
    if await call.starts.withdraw(params.session_id):
        status = "[not started: the question to the user was withdrawn]"
        return Reply(
            state=status,
            text=f"Terminal session {params.session_id} terminated.",
            data=Stopped(id=params.session_id, status=status, terminated=True),
        )
    session = await call.get(params.session_id)
    await call.sessions.stop(session)
    status = f"[stopped after {session.uptime:.1f} s]"
    return Reply(
        text=f"Terminal session {session.id} terminated.",
        data=Stopped(id=session.id, status=status, terminated=True),
    )


TOOL = Tool(
    name="terminal_stop",
    description="Terminate a terminal session: all its processes are ended, and its id is invalid.",
    params=Params,
    result=Stopped,
    execute=_execute,
    destructive=True,
)
