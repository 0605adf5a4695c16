"""`terminal_bash`: run a command, and return its exit code and output.

A command that has not ended at its time limit continues in the background under an id, or is
killed, as the setting `tool_at_timeout` says. If a command waits for input, the call returns at
once with an id, since waiting longer would not help.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from acpterm.acp.agent_api import Positive
from acpterm.api.results import Completed
from acpterm.mcp.call import Call
from acpterm.mcp.cropping import crop
from acpterm.mcp.session_tools.replies import session_reply
from acpterm.mcp.sessions import Launch, Session
from acpterm.mcp.shell_replies import command_reply, exit_heading, state_of_command
from acpterm.mcp.states import SessionResult, View, call_text
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.waiting import read_new, removed_on_failure, wait_until

_BACKGROUND_WAIT_S: Final = 0.5
"""Seconds that a call waits for a command in the background.

So the result can report the error of a command that fails at once.
"""


class Params(Struct, kw_only=True):
    """The parameters of `terminal_bash`."""

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


async def _execute(call: Call, params: Params) -> Reply:
    settings = call.settings
    limit = settings.timeout_seconds if params.timeout_seconds is None else params.timeout_seconds
    kills = settings.at_timeout == "kill" and not params.run_in_background
    if params.session is not None:
        return await _in_shell(call, params, params.session, limit, kills=kills)
    call.doing = "starting the command"
    call.approval_s = 0 if params.run_in_background else limit
    session = await call.start(
        Launch(params.command, cwd=params.cwd, timeout_s=limit if kills else None)
    )
    async with removed_on_failure(call, session):
        wait = _BACKGROUND_WAIT_S if params.run_in_background else limit
        # A killed command needs a moment to end after its time limit.
        grace = 5.0 if kills else 0.0
        await wait_until(call, session, timeout_s=wait + grace)
        view = await read_new(call, session)
        if view.exit is not None:
            view = await _whole(call, session, view, params.max_output)
    reply = await session_reply(call, session, view, heading(session, view, limit))
    if view.exit is not None and not (view.exit.background or view.cropped.is_cropped):
        # The client has all output, and was never sent the id.
        await call.sessions.remove(session)
    return reply


async def _in_shell(call: Call, params: Params, name: str, limit: float, *, kills: bool) -> Reply:
    """Run the command in the persistent shell `name`, and return the result of the call.

    `limit` is the time limit of the command in seconds. At the limit, the command is killed if
    `kills` is true, and otherwise continues in the shell.
    """
    session, completed, was_killed = await call.shells.run(
        call,
        name,
        params.command,
        _BACKGROUND_WAIT_S if params.run_in_background else limit,
        cwd=params.cwd,
        at_limit="kill" if kills else "continue",
    )
    return command_reply(
        session,
        completed,
        crop(completed.output, params.max_output or call.settings.crop_output),
        next_call=_next_call(name, session, completed),
        heading=_killed(limit) if was_killed else exit_heading(session, completed),
    )


def _next_call(name: str, session: Session, completed: Completed) -> str:
    match state_of_command(completed):
        case "running":
            return call_text("terminal_wait", sessionId=session.id)
        case "waiting_for_input":
            return call_text("terminal_continue", sessionId=session.id, stdin=...)
        case _:
            return call_text("terminal_bash", session=name, command=...)


async def _whole(call: Call, session: Session, view: View, max_output: int | None) -> View:
    """Set `view.text` to all output that the host retains as text, and return `view`.

    Before the call, `view.text` comes from the output that the host retains as bytes. If a command
    prints much, the host retains a longer part of the output as text than as bytes. `view.cropped`
    becomes the new `view.text`, cropped to `max_output` characters; if `max_output` is None, to the
    number in the setting `tool_crop_output`. `view.lost` becomes 1 if the beginning of the text is
    not retained, otherwise 0.
    """
    whole = await session.terminal.output()
    view.text = whole.text
    view.cropped = crop(whole.text, max_output or call.settings.crop_output)
    view.lost = int(whole.truncated)
    return view


def heading(session: Session, view: View, limit: float) -> str:
    """Return the text that precedes the output in the reply.

    If the command has ended, the text says how. If not, the text has the id of `session`, under
    which the command continues. `limit` is the time limit of the command in seconds.
    """
    end = view.exit
    if end is None:
        why = "waits for input" if view.is_waiting else "has not ended yet"
        does = "is stopped" if view.stopped is not None else f"{why}, and continues"
        return f"Terminal Id: {session.id}\nThe command {does}.\n\nOutput:\n"
    if end.ended_by == "timeout":
        return _killed(limit)
    if end.signal is not None and end.code is None:
        return f"Signal: {end.signal}\n\nOutput:\n"
    return f"Exit Code: {end.code}\n\nOutput:\n"


def _killed(limit: float) -> str:
    return f"Command timed out after {limit:g} s, and was killed.\n\nOutput:\n"


TOOL = Tool(
    name="terminal_bash",
    description=(
        "Execute a shell command in a real terminal, and return its exit code and output. A "
        "command that takes longer than timeout_seconds, or that waits for input, is not lost: it "
        "continues in the background, and the result has its session id for terminal_wait, "
        "terminal_continue and terminal_stop."
    ),
    params=Params,
    result=SessionResult,
    execute=_execute,
    destructive=True,
)
