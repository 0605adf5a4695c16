"""`BashOutput`: return the new output of a background shell.

With a filter, an incomplete last line is left to the next result, because the rest of the line may
decide whether the line matches. The line is returned at once if it is longer than `LINE_CHARS_MAX`,
or if the command has ended or waits for input.
"""

from datetime import UTC, datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from acpterm.mcp.call import Call
from acpterm.mcp.claude_tools.replies import (
    CONTINUED_BY,
    LINE_CHARS_MAX,
    OUTPUT_CHARS_MAX,
    REST,
    crop_output,
    next_calls,
    session_reply,
)
from acpterm.mcp.cropping import crop
from acpterm.mcp.named_shell import has_ended
from acpterm.mcp.patterns import ModelPattern
from acpterm.mcp.sessions import Session
from acpterm.mcp.shell_replies import command_reply
from acpterm.mcp.shells import CATCH_UP_S
from acpterm.mcp.states import SessionResult, state_of
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.waiting import read_new


class Params(Struct, kw_only=True):
    """The parameters of `BashOutput`."""

    bash_id: Annotated[str, Meta(description="The ID of the background shell")]
    filter: Annotated[
        str | UnsetType,
        Meta(description="Regular expression: only matching lines; others are not read later"),
    ] = UNSET


async def _execute(call: Call, params: Params) -> Reply:
    call.approval_s = 0
    session = await call.get(params.bash_id)
    pattern = None if params.filter is UNSET else ModelPattern(params.filter)
    async with call.turn(session):
        return await _read(call, session, pattern)


async def _read(call: Call, session: Session, pattern: ModelPattern | None) -> Reply:
    ran = await call.shells.wait(call, session, CATCH_UP_S)
    if ran is not None:
        completed, new = ran.completed, ran.new
        if pattern is not None and completed.state == "running":
            new, rest = _split(new)
            call.shells.unread(session, rest)
        ended = has_ended(completed)
        status = "completed" if ended else "running"
        output = crop(await _matching(new, pattern), OUTPUT_CHARS_MAX, ran.lost)
        code = completed.exit_code if ended else None
        return command_reply(
            ran,
            output,
            next_calls=next_calls(session, ran.screen_size),
            stop="KillShell",
            text=_text(status, code, output.with_note(REST)),
            note=REST,
            is_short=True,
        )
    view = await read_new(call, session)
    if pattern is not None and state_of(view) == "running":
        view.text, session.unread = _split(view.text)
    view.text = await _matching(view.text, pattern)
    note = crop_output(view)
    status = {"exited": "completed", "killed": "killed"}.get(state_of(view), "running")
    code = None if view.exit is None else view.exit.code
    text = _text(status, code, view.cropped.with_note(note))
    return await session_reply(call, session, view, text, note)


def _split(text: str) -> tuple[str, str]:
    """Return the complete lines of `text`, and its incomplete last line, which may be empty."""
    begin = text.rfind("\n") + 1
    return (text, "") if len(text) - begin > LINE_CHARS_MAX else (text[:begin], text[begin:])


async def _matching(text: str, pattern: ModelPattern | None) -> str:
    if pattern is None:
        return text
    *lines, last = text.split("\n")
    found = await pattern.matching([*lines, last] if last else lines)
    return "".join(line if number == len(lines) else f"{line}\n" for number, line in found)


def _text(status: str, code: int | None, output: str) -> str:
    parts = [f"<status>{status}</status>"]
    if code is not None:
        parts.append(f"<exit_code>{code}</exit_code>")
    if output:
        parts.append(f"<stdout>\n{output.rstrip()}\n</stdout>")
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    parts.append(f"<timestamp>{now.replace('+00:00', 'Z')}</timestamp>")
    return "\n\n".join(parts)


TOOL = Tool(
    name="BashOutput",
    description=(
        "Retrieves output from a running or completed background bash shell: always only what is "
        "new since the last check, and the status."
    ),
    params=Params,
    result=SessionResult,
    execute=_execute,
    continued_by=CONTINUED_BY,
    reads_only=True,
)
