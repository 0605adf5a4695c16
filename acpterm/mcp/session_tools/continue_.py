"""`terminal_continue`: type into a session, and get the output since the last result."""

from typing import Annotated

from msgspec import Meta, Struct, field

from acpterm.mcp.call import Call
from acpterm.mcp.connection import FormQuestion
from acpterm.mcp.cropping import crop
from acpterm.mcp.named_shell import has_ended
from acpterm.mcp.patterns import ModelPattern
from acpterm.mcp.session_tools.replies import session_reply, shell_reply
from acpterm.mcp.sessions import TerminalSession
from acpterm.mcp.shell_replies import unknown_end
from acpterm.mcp.shells import CATCH_UP_S
from acpterm.mcp.states import SessionResult
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.tool_error import ToolError
from acpterm.mcp.waiting import read_new, settle, type_into, wait_until
from acpterm.runtime.sanitize import one_line


class ContinueParams(Struct, kw_only=True):
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
            "input of this call, and is not its echo"
        ),
    ] = None
    timeout_seconds: Annotated[
        float | None, Meta(description="How long to wait for wait_for, in seconds")
    ] = None
    ask_user: Annotated[
        bool,
        Meta(
            description="Let the user type the line that the program waits for, in the MCP client; "
            "never for passwords"
        ),
    ] = False


async def _execute(call: Call, params: ContinueParams) -> Reply:
    call.approval_s = params.timeout_seconds or call.settings.max_interval
    session = await call.get(params.session_id)
    pattern = None if params.wait_for is None else ModelPattern(params.wait_for)
    async with call.turn(session):
        return await _continue(call, session, params, pattern)


async def _continue(
    call: Call, session: TerminalSession, params: ContinueParams, pattern: ModelPattern | None
) -> Reply:
    is_shell = call.shells.is_busy(session)
    if is_shell and not await call.shells.catch_up(session) and (params.stdin or params.keys):
        raise ToolError(
            f"nothing was typed into {session.id}: its command has ended; terminal_wait returns how"
        )
    if params.ask_user:
        await type_into(session, await _ask_user(call, session))
    elif params.stdin or params.keys:
        await type_into(session, params.stdin, params.keys)
    waited = None
    if pattern is None:
        await settle(call, session)
    else:
        timeout = params.timeout_seconds or call.settings.max_interval
        waited = await wait_until(
            call, session, pattern=pattern, until_input=False, timeout_s=timeout
        )
        session.matched = max(session.matched, waited.end)
    heading = f"Terminal Session: {session.id}\n\nOutput:\n"
    if is_shell and (ran := await call.shells.wait(call, session, CATCH_UP_S)) is not None:
        matched = None if waited is None else waited.matched
        if has_ended(ran.completed):
            heading = unknown_end(ran.completed)
        return shell_reply(
            ran, crop(ran.new, call.settings.crop_output, ran.lost), heading, matched
        )
    view = await read_new(call, session, waited)
    return await session_reply(call, session, view, heading)


async def _ask_user(call: Call, session: TerminalSession) -> str:
    """Return the line that the user types in the MCP client, with a line end."""
    attach = f"the user can: acpterm attach {session.id}"
    view = await read_new(call, session)
    if view.is_secret:
        raise ToolError(f"{session.id} waits for a password, which is not asked here; {attach}")
    if call.ask is None:
        raise ToolError(f"the MCP client cannot ask the user; {attach}")
    call.doing = "waiting for the user's input"
    prompt = session.prompt or view.text.strip().rpartition("\n")[2]
    answer = await call.ask(
        FormQuestion(
            f"{one_line(session.command)} waits for input: {one_line(prompt)}",
            {
                "type": "object",
                "properties": {"input": {"type": "string", "title": "Input, followed by Enter"}},
                "required": ["input"],
            },
        )
    )
    if answer is None or answer.action != "accept":
        raise ToolError(f"the user has not typed anything; {attach}")
    return f"{(answer.content or {}).get('input', '')}\n"


TOOL = Tool(
    name="terminal_continue",
    description=(
        "Continue a terminal session: send input (stdin, keys), wait, and return the output since "
        "the last result. Always use this instead of terminal_start for follow-up commands. "
        "Without input it returns what came meanwhile. It returns early when the program ends or "
        "waits for input."
    ),
    params=ContinueParams,
    result=SessionResult,
    execute=_execute,
    destructive=True,
)
