"""`Bash`: run a command in a persistent shell, or in the background.

Commands share the shell's directory, variables and functions. A command that has not ended at its
time limit keeps its shell, which becomes a background session. The next command gets a new shell,
which starts in the last known directory of the old one.
"""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from acpterm.mcp.call import Call
from acpterm.mcp.claude_tools.replies import (
    CONTINUED_BY,
    OUTPUT_CHARS_MAX,
    REST,
    crop_output,
    next_calls,
    session_reply,
)
from acpterm.mcp.named_shell import has_ended
from acpterm.mcp.sessions import Launch
from acpterm.mcp.shell_replies import command_reply, crop_command
from acpterm.mcp.states import SessionResult
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.waiting import read_new, removed_on_failure, wait_until

TIMEOUT_MS: Final = 120_000
TIMEOUT_MAX_MS: Final = 600_000
_BACKGROUND_WAIT_S: Final = 0.5
_SHELL: Final = "Bash"
"""The name of the persistent shell."""


class Params(Struct, kw_only=True):
    """The parameters of `Bash`."""

    command: Annotated[str, Meta(description="The command to execute")]
    timeout: Annotated[
        float | UnsetType,
        Meta(description="Optional timeout in milliseconds (max 600000; 120000 by default)"),
    ] = UNSET
    description: Annotated[
        str | UnsetType, Meta(description="What the command does, in a few words")
    ] = UNSET
    run_in_background: Annotated[
        bool | UnsetType,
        Meta(description="Set to true to run it in the background; read it with BashOutput"),
    ] = UNSET
    dangerouslyDisableSandbox: Annotated[  # noqa: N815
        bool | UnsetType, Meta(description="Accepted, and without effect: the user decides.")
    ] = UNSET


async def _execute(call: Call, params: Params) -> Reply:
    timeout_ms = TIMEOUT_MS if params.timeout is UNSET else params.timeout
    limit = min(max(timeout_ms, 1), TIMEOUT_MAX_MS) / 1000
    if params.run_in_background is not True:
        return await _in_shell(call, params.command, limit)
    call.doing = "starting the command"
    call.approval_s = 0
    session = await call.start(Launch(params.command))
    async with removed_on_failure(call, session):
        await wait_until(call, session, timeout_s=_BACKGROUND_WAIT_S)
        view = await read_new(call, session)
    note = crop_output(view)
    output = view.cropped.with_note(note)
    text = f"Command running in background with ID: {session.id}\n{output}"
    if view.exit is not None:
        text = _with_code(view.exit.code, output)
    return await session_reply(call, session, view, text, note)


async def _in_shell(call: Call, command: str, limit: float) -> Reply:
    call.approval_s = limit
    ran = await call.shells.run(call, _SHELL, command, limit, at_limit="set_aside")
    session, completed = ran.session, ran.completed
    if has_ended(completed):
        heading = _with_code(completed.exit_code, "")
    else:
        is_waiting = completed.state == "waiting_for_input"
        why = "waits for input" if is_waiting else f"has not ended after {limit:g} s"
        if ran.screen_size is not None:
            why = "draws the whole screen"
        heading = f"The command {why}, and continues in the background with ID: {session.id}\n"
    return command_reply(
        ran,
        crop_command(completed, OUTPUT_CHARS_MAX),
        next_calls=next_calls(session, ran.screen_size),
        stop="KillShell",
        heading=heading,
        note=REST,
        is_short=True,
    )


def _with_code(code: int | None, output: str) -> str:
    return output if code == 0 else f"Exit code {'unknown' if code is None else code}\n{output}"


TOOL = Tool(
    name="Bash",
    description=(
        "Executes a given bash command with an optional timeout, in a real terminal. A command "
        "that takes longer, or that waits for input, continues in the background. Directory and "
        "variables persist between commands."
    ),
    params=Params,
    result=SessionResult,
    execute=_execute,
    continued_by=CONTINUED_BY,
    destructive=True,
)
