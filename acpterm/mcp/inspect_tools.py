"""The tool of `--tools inspect`: `bash_session` of Inspect AI, with its parameters and waits.

The client has one interactive bash, which the first call starts, and the first one after its end.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from acpterm.api.waiting import collect
from acpterm.mcp.call import Call
from acpterm.mcp.cropping import REST
from acpterm.mcp.named_shell import turn
from acpterm.mcp.sessions import SessionLaunch, TerminalSession
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.tool_error import ToolError
from acpterm.mcp.waiting import read_new, removed_on_failure, type_into, wait_until

OUTPUT_WAIT_S: Final = 30.0
IDLE_S: Final = 0.5
_PROMPT_WAIT_S: Final = 5.0


class InspectParams(Struct, kw_only=True):
    action: Annotated[
        Literal["type", "type_submit", "restart", "read", "interrupt"],
        Meta(
            description='"type": type the input. "type_submit": type the input and Enter. "read": '
            'read new output. "interrupt": press Ctrl+C. "restart": end this bash and start another'
        ),
    ]
    input: Annotated[
        str | None,
        Meta(
            description='What is typed. Required for "type", optional for "type_submit", and not '
            "allowed for the other actions"
        ),
    ] = None


async def _execute(call: Call, params: InspectParams) -> Reply:
    action, text = params.action, params.input
    if action == "type" and text is None:
        raise ToolError("'input' is required for 'type' action.")
    if action not in ("type", "type_submit") and text is not None:
        raise ToolError(f"Do not provide 'input' with '{action}' action.")
    async with turn(call.sessions.turn, call.remaining, "another call uses the bash: call again"):
        return await _act(call, action, text)


async def _act(call: Call, action: str, text: str | None) -> Reply:
    found = call.sessions.all()
    if action == "restart":
        for each in found:
            await call.sessions.stop(each)
        await _start(call)
        return Reply(text="Bash session restarted.")
    session = found[-1] if found else await _start(call)
    typed = {"type": text, "type_submit": f"{text or ''}\n", "interrupt": "\x03"}.get(action)
    if typed:
        await type_into(session, typed)
    call.doing = "waiting for output"
    now = await session.terminal.read(session.position)
    if not now.text and not now.waiting_for_input and now.exit is None:
        await session.terminal.read(session.position, wait=call.limited(OUTPUT_WAIT_S))
    longest = call.limited(OUTPUT_WAIT_S)
    await collect(session.terminal, session.position, min(IDLE_S, longest), IDLE_S, longest)
    view = await read_new(call, session)
    output = view.cropped.with_note(REST)
    if view.exit is not None:
        await call.sessions.remove(session)
        output += "\n[The shell has ended. The next call starts another one.]"
    return Reply(text=output)


async def _start(call: Call) -> TerminalSession:
    call.doing = "starting the shell"
    session = await call.start(SessionLaunch("bash", [], shell=False))
    async with removed_on_failure(call, session):
        await wait_until(call, session, timeout_s=_PROMPT_WAIT_S)
    return session


TOOL: Final = Tool(
    name="bash_session",
    description="""Use an interactive bash: type into it, and read what it shows.

A result has the output since the last one, which may be only a part: read again for more.

- Submit a command when the output ends with a prompt, such as "$ " or "# ". A prompt "> " means \
that the line is not complete: complete it, or interrupt.
- While a command runs, what you type is input for it. Interrupt it to get the prompt back.
- Send control characters as escape sequences of JSON, such as "\\u0004" for Ctrl+D.""",
    params=InspectParams,
    result=None,
    execute=_execute,
    destructive=True,
)
