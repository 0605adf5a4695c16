"""`terminal_start`: start a terminal session that continues after the call."""

import re
from typing import Annotated, Final

from msgspec import Meta, Struct

from acpterm.mcp.call import Call
from acpterm.mcp.session_tools.replies import session_reply
from acpterm.mcp.sessions import NAME, SessionLaunch
from acpterm.mcp.starting import PENDING
from acpterm.mcp.states import SessionResult
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.tool_error import ToolError
from acpterm.mcp.waiting import read_new, removed_on_failure, settle

_RESERVED: Final = re.compile(rf"{PENDING}(\d+|#)")


class StartParams(Struct, kw_only=True):
    command: Annotated[str, Meta(description="The shell command to execute")]
    cwd: Annotated[str | None, Meta(description="Its directory, an absolute path")] = None
    name: Annotated[
        str | None, Meta(description="Name of the session; by default term-1, term-2, …")
    ] = None
    cols: Annotated[int | None, Meta(description="Width of the terminal, in cells")] = None
    rows: Annotated[int | None, Meta(description="Height of the terminal, in cells")] = None
    env: Annotated[dict[str, str] | None, Meta(description="Environment variables to add")] = None


async def _execute(call: Call, params: StartParams) -> Reply:
    if params.name is not None and _RESERVED.fullmatch(params.name):
        raise ToolError(f"the name {params.name!r} is that of a question to the user: use another")
    call.doing = "starting the program"
    session = await call.start(
        SessionLaunch(
            params.command,
            cwd=params.cwd,
            env=params.env,
            name=params.name or NAME,
            cols=params.cols,
            rows=params.rows,
        )
    )
    async with removed_on_failure(call, session):
        await settle(call, session)
        view = await read_new(call, session)
    heading = (
        f"Terminal Session Started\nTerminal Id: {session.id}\n"
        f"Sent Command: {params.command}\n\nOutput:\n"
    )
    return await session_reply(call, session, view, heading)


TOOL = Tool(
    name="terminal_start",
    description=(
        "Start a persistent terminal session: a dev server, a REPL, a debugger, or anything that "
        "asks questions. Returns the session id, the first output and a position. Only use this "
        "for the first command of a task, or to start fresh: use terminal_continue for what "
        "follows, so that the state of the session stays. For a command that just runs and ends, "
        "use terminal_bash."
    ),
    params=StartParams,
    result=SessionResult,
    execute=_execute,
    destructive=True,
)
