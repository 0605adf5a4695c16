"""`terminal_bash`: run a command, and return its exit code and output.

A command that has not ended at its time limit continues in the background under an id, or is
killed, as the setting `tool_at_timeout` says. If a command waits for input, the call returns at
once with an id, since waiting longer would not help.
"""

from typing import Annotated

from msgspec import Meta, Struct

from acpterm.acp.agent_api import Positive
from acpterm.mcp.call import Call
from acpterm.mcp.cropping import crop, lost_before
from acpterm.mcp.session_tools.replies import session_reply, shell_reply
from acpterm.mcp.sessions import SessionLaunch, TerminalSession
from acpterm.mcp.shell_replies import crop_command
from acpterm.mcp.states import SessionResult, View
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.waiting import BACKGROUND_WAIT_S, read_new, removed_on_failure, wait_for_end


class SessionBashParams(Struct, kw_only=True):
    command: Annotated[str, Meta(description="The shell command to execute")]
    cwd: Annotated[
        str | None,
        Meta(description="Its directory, an absolute path; with session, where a new shell starts"),
    ] = None
    timeout_seconds: Annotated[
        float | None,
        Meta(description="Seconds after which it continues in the background; 60 by default"),
    ] = None
    description: Annotated[str | None, Meta(description="What the command does")] = None
    run_in_background: Annotated[
        bool, Meta(description="Do not wait: return the id of a session")
    ] = False
    session: Annotated[
        str | None,
        Meta(
            description="Name of a persistent shell: commands with the same name share directory, "
            "variables and functions. Without it the command has a shell of its own"
        ),
    ] = None
    max_output: Annotated[
        Positive | None, Meta(description="Maximum number of characters of output")
    ] = None


async def _execute(call: Call, params: SessionBashParams) -> Reply:
    settings = call.settings
    limit = settings.timeout_seconds if params.timeout_seconds is None else params.timeout_seconds
    kills = settings.at_timeout == "kill" and not params.run_in_background
    if params.session is not None:
        return await _in_shell(call, params, params.session, limit, kills=kills)
    call.doing = "starting the command"
    call.approval_s = 0 if params.run_in_background else limit
    session = await call.start(
        SessionLaunch(params.command, cwd=params.cwd, timeout_s=limit if kills else None)
    )
    async with removed_on_failure(call, session):
        wait = BACKGROUND_WAIT_S if params.run_in_background else limit
        # A killed command needs a moment to end after its time limit.
        grace = 5.0 if kills else 0.0
        await wait_for_end(call, session, wait + grace)
        view = await read_new(call, session)
        if view.exit is not None:
            view = await _whole(call, session, view, params.max_output)
    continues = view.exit is None or bool(view.exit.background)
    reply = await session_reply(call, session, view, shows_id=continues, is_short=True)
    if view.exit is not None and not (view.exit.background or view.cropped.is_cropped):
        # The client has all output, and was never sent the id.
        await call.sessions.remove(session)
    return reply


async def _in_shell(
    call: Call, params: SessionBashParams, name: str, limit: float, *, kills: bool
) -> Reply:
    call.approval_s = 0 if params.run_in_background else limit
    ran = await call.shells.run(
        call,
        name,
        params.command,
        BACKGROUND_WAIT_S if params.run_in_background else limit,
        cwd=params.cwd,
        at_limit="kill" if kills else "continue",
    )
    output = crop_command(ran.completed, params.max_output or call.settings.crop_output)
    return shell_reply(ran, output, is_short=True)


async def _whole(call: Call, session: TerminalSession, view: View, max_output: int | None) -> View:
    """Show all output that the host retains as text: often more than it retains as bytes."""
    whole = await session.terminal.output()
    view.text = whole.text
    view.lost = None
    if whole.truncated:
        view.lost = lost_before(whole.text, whole.position, whole.beginning, whole.total_lines)
    view.cropped = crop(whole.text, max_output or call.settings.crop_output, view.lost)
    return view


TOOL = Tool(
    name="terminal_bash",
    description=(
        "Execute a shell command in a real terminal, and return its exit code and output. A "
        "command that takes longer than timeout_seconds, or that waits for input, is not lost: it "
        "continues in the background, and the result has its session id for terminal_wait, "
        "terminal_continue and terminal_stop."
    ),
    params=SessionBashParams,
    result=SessionResult,
    execute=_execute,
    destructive=True,
)
