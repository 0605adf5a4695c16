"""`terminal_stop`: end a session with its programs, or withdraw a pending start."""

from typing import Annotated

from msgspec import Meta, Struct, field

from acpterm.mcp.call import WITHDRAWN, Call
from acpterm.mcp.tool import Reply, Tool


class StopParams(Struct, kw_only=True):
    session_id: Annotated[str, Meta(description="The terminal session ID to terminate")] = field(
        name="sessionId"
    )


class StoppedSession(Struct, kw_only=True):
    id: str
    status: Annotated[str, Meta(description="what was ended")]
    terminated: bool


async def _execute(call: Call, params: StopParams) -> Reply:
    session = await call.stop(params.session_id)
    name = params.session_id if session is None else session.id
    status = WITHDRAWN if session is None else f"[stopped after {session.uptime:.1f} s]"
    return Reply(
        state=status if session is None else None,
        text=f"Terminal session {name} terminated.",
        data=StoppedSession(id=name, status=status, terminated=True),
    )


TOOL = Tool(
    name="terminal_stop",
    description="Terminate a terminal session: all its processes are ended, and its id is invalid.",
    params=StopParams,
    result=StoppedSession,
    execute=_execute,
    destructive=True,
)
