"""`terminal_continue`: type into a session, and get the output since the last result."""

from typing import Annotated

from msgspec import Meta, Struct, field

from acpterm.mcp.call import Call
from acpterm.mcp.session_tools.replies import session_reply
from acpterm.mcp.states import SessionResult
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.waiting import compiled, read_new, settle, type_into, wait_until


class Params(Struct, kw_only=True):
    """The parameters of `terminal_continue`."""

    session_id: Annotated[str, Meta(description="The terminal session ID")] = field(
        name="sessionId"
    )
    stdin: Annotated[
        str | None,
        Meta(description="Input to send to the terminal; end a line with \\n to press Enter"),
    ] = None
    keys: Annotated[
        list[str] | str | None,
        Meta(description='Keys to press after stdin: Enter, Up, C-c, M-x, F5, as in ["Down"]'),
    ] = None
    wait_for: Annotated[
        str | None,
        Meta(
            description="Wait until this regular expression matches output that came after the "
            "input of this call"
        ),
    ] = None
    timeout_seconds: Annotated[
        float | None, Meta(description="How long to wait for wait_for, in seconds")
    ] = None


async def _execute(call: Call, params: Params) -> Reply:
    session = await call.sessions.get(params.session_id)
    pattern = compiled(params.wait_for)
    if params.stdin or params.keys:
        await type_into(session, params.stdin, params.keys)
    waited = None
    if pattern is None:
        await settle(call, session)
    else:
        timeout = params.timeout_seconds or call.settings.max_interval
        waited = await wait_until(
            call, session, pattern=pattern, until_input=False, timeout_s=timeout
        )
    view = await read_new(call, session, waited)
    return await session_reply(call, session, view, f"Terminal Session: {session.id}\n\nOutput:\n")


TOOL = Tool(
    name="terminal_continue",
    description=(
        "Continue a terminal session: send input (stdin, keys), wait, and return the output since "
        "the last result. Always use this instead of terminal_start for follow-up commands. "
        "Without input it returns what came meanwhile. It returns early when the program ends or "
        "waits for input."
    ),
    params=Params,
    result=SessionResult,
    execute=_execute,
    destructive=True,
)
