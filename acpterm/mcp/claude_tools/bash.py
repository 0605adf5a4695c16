"""`Bash`: run a command, in the foreground up to a time limit, or in the background."""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from acpterm.mcp.call import Call
from acpterm.mcp.claude_tools.replies import cropped, shell_reply
from acpterm.mcp.sessions import Launch, Session
from acpterm.mcp.states import SessionResult, View
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.waiting import owned, read_new, wait_until

TIMEOUT_MS: Final = 120_000
TIMEOUT_MAX_MS: Final = 600_000
_BACKGROUND_WAIT_S: Final = 0.5


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
    is_background = params.run_in_background is True
    call.doing = "starting the command"
    session = await call.start(Launch(params.command))
    async with owned(call, session):
        await wait_until(call, session, timeout_s=_BACKGROUND_WAIT_S if is_background else limit)
        view = await read_new(call, session)
    note = cropped(view)
    return await shell_reply(
        call, session, view, _text(session, view, note, limit, is_background), note
    )


def _text(session: Session, view: View, note: str, limit: float, is_background: bool) -> str:
    output = view.cropped.with_note(note)
    end = view.exit
    if end is not None:
        if end.code == 0:
            return output
        how = f"Exit code {end.code}" if end.code is not None else f"Killed by {end.signal}"
        return f"{how}\n{output}"
    if is_background:
        return f"Command running in background with ID: {session.id}\n{output}"
    why = "waits for input" if view.is_waiting else f"has not ended after {limit:g} s"
    return f"The command {why}, and continues in the background with ID: {session.id}\n{output}"


TOOL = Tool(
    name="Bash",
    description=(
        "Executes a given bash command with an optional timeout, in a real terminal. A command "
        "that takes longer, or that waits for input, continues in the background."
    ),
    params=Params,
    result=SessionResult,
    execute=_execute,
    destructive=True,
)
