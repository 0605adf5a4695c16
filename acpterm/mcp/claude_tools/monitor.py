"""`Monitor`: run a command, and report each line of its output as an event.

Lines are batched for `BATCH_S`, and sent as progress while the call lasts. A line is sent when it
is complete, or longer than `LINE_CHARS_MAX`. The result has all lines, too. A command that prints
more than `FLOOD_LINES` in one batch is killed, since such lines are not events.
"""

from typing import Annotated, Final

import anyio
from msgspec import Meta, Struct

from acpterm.mcp.call import Call
from acpterm.mcp.claude_tools.replies import (
    CONTINUED_BY,
    LINE_CHARS_MAX,
    crop_output,
    session_reply,
)
from acpterm.mcp.sessions import Launch, Session
from acpterm.mcp.states import SessionResult
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.waiting import read_new, removed_on_failure

TIMEOUT_MS: Final = 300_000
BATCH_S: Final = 0.2
FLOOD_LINES: Final = 500
"""More lines in one batch than this are a flood."""


class Params(Struct, kw_only=True):
    """The parameters of `Monitor`."""

    command: Annotated[str, Meta(description="Each line that it prints is an event")]
    description: Annotated[str, Meta(description="What is monitored, in a few words")] = ""
    timeout_ms: Annotated[
        float, Meta(description="Ends the command after this time, unless it is persistent")
    ] = TIMEOUT_MS
    persistent: Annotated[bool, Meta(description="Run until KillShell, without a time limit")] = (
        False
    )


async def _execute(call: Call, params: Params) -> Reply:
    limit = max(params.timeout_ms, 1) / 1000
    call.doing = "starting the command"
    session = await call.start(
        Launch(params.command, timeout_s=None if params.persistent else limit)
    )
    async with removed_on_failure(call, session):
        is_flood = await _follow(call, session, params.description or params.command)
        if is_flood:
            await session.terminal.kill()
            await session.terminal.wait(call.limited(5))
        view = await read_new(call, session)
    note = crop_output(view)
    why = "ended, because it flooded its output" if is_flood else "still monitored"
    if view.exit is not None and not is_flood:
        timed_out = view.exit.ended_by == "timeout"
        why = f"ended after {limit:g} s" if timed_out else f"ended, exit code {view.exit.code}"
    text = f"Monitor {session.id}: {why}\n{view.cropped.with_note(note)}"
    return await session_reply(call, session, view, text, note)


async def _follow(call: Call, session: Session, what: str) -> bool:
    """Send each batch of lines as progress. Return True at once if one is a flood."""
    position, rest = session.position, ""
    while call.remaining > 0:
        call.doing = f"monitoring {what}"
        output = await session.terminal.read(position, wait=call.limited(10))
        if output.exit is not None and not output.text:
            if rest:
                await call.report(rest)
            return False
        if not output.text:
            continue
        await anyio.sleep(BATCH_S)
        batch = await session.terminal.read(position)
        position = batch.position
        if batch.lost and rest:
            # The text after the gap is not the end of this line.
            rest += "\n"
        *lines, rest = (rest + batch.text).split("\n")
        if len(lines) > FLOOD_LINES:
            return True
        if len(rest) > LINE_CHARS_MAX:
            lines.append(rest)
            rest = ""
        if lines:
            await call.report("\n".join(lines))
    return False


TOOL = Tool(
    name="Monitor",
    description=(
        "Runs a command in the background and reports each line of its output as an event. If it "
        "still runs when the call returns, read further events with BashOutput."
    ),
    params=Params,
    result=SessionResult,
    execute=_execute,
    continued_by=CONTINUED_BY,
    destructive=True,
)
