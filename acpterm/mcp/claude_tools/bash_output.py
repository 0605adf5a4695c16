"""`BashOutput`: what is new in the output of a background shell."""

from datetime import UTC, datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from acpterm.mcp.call import Call
from acpterm.mcp.claude_tools.replies import cropped, shell_reply
from acpterm.mcp.states import SessionResult, state_of
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.waiting import compiled, read_new


class Params(Struct, kw_only=True):
    """The parameters of `BashOutput`."""

    bash_id: Annotated[str, Meta(description="The ID of the background shell")]
    filter: Annotated[
        str | UnsetType,
        Meta(description="Regular expression: only matching lines; others are not read later"),
    ] = UNSET


async def _execute(call: Call, params: Params) -> Reply:
    session = await call.get(params.bash_id)
    pattern = None if params.filter is UNSET else compiled(params.filter)
    view = await read_new(call, session)
    if pattern is not None:
        lines = view.text.splitlines(keepends=True)
        view.text = "".join(line for line in lines if pattern.search(line))
    note = cropped(view)
    status = {"exited": "completed", "killed": "killed"}.get(state_of(view), "running")
    parts = [f"<status>{status}</status>"]
    if view.exit is not None and view.exit.code is not None:
        parts.append(f"<exit_code>{view.exit.code}</exit_code>")
    if view.text:
        parts.append(f"<stdout>\n{view.cropped.with_note(note).rstrip()}\n</stdout>")
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    parts.append(f"<timestamp>{now.replace('+00:00', 'Z')}</timestamp>")
    return await shell_reply(call, session, view, "\n\n".join(parts), note)


TOOL = Tool(
    name="BashOutput",
    description=(
        "Retrieves output from a running or completed background bash shell: always only what is "
        "new since the last check, and the status."
    ),
    params=Params,
    result=SessionResult,
    execute=_execute,
    reads_only=True,
)
