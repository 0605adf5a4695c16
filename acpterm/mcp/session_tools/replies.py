"""What the results of several session tools have in common."""

from acpterm.mcp.call import Call
from acpterm.mcp.cropping import Cropped
from acpterm.mcp.named_shell import has_ended
from acpterm.mcp.sessions import TerminalSession
from acpterm.mcp.shell_replies import command_reply, unknown_end
from acpterm.mcp.shells import Ran
from acpterm.mcp.states import (
    SCREEN_CALLS,
    View,
    call_text,
    says_more,
    session_result,
    state_line,
)
from acpterm.mcp.tool import Reply


def how_to_read(session: TerminalSession, view: View) -> str:
    """Return the tool call, as text, that returns the output that `view` leaves out."""
    since = {"since": view.since} if view.since else {}
    return call_text(
        "terminal_output", sessionId=session.id, **since, offset=view.cropped.head_lines
    )


def _next_calls(view: View) -> tuple[str, ...]:
    if view.screen_size is not None:
        return SCREEN_CALLS
    if view.is_waiting:
        return ("terminal_continue",)
    return ("terminal_wait" if view.stopped is None else "terminal_stop",)


async def session_reply(
    call: Call,
    session: TerminalSession,
    view: View,
    heading: str = "",
    *,
    shows_id: bool = False,
    is_short: bool = False,
) -> Reply:
    """Return the reply; if `is_short`, a success that printed something is its output alone."""
    note = how_to_read(session, view)
    calls = _next_calls(view)
    if session.is_idle and (name := call.shells.idle_name(session)) is not None:
        calls = (call_text("terminal_bash", session=name),)
    status = state_line(session, view, next_calls=calls, stop="terminal_stop", shows_id=shows_id)
    text = f"{heading}{view.cropped.with_note(note)}"
    succeeded = view.exit is not None and view.exit.code == 0 and not says_more(session, view)
    reply = Reply(
        state=None if is_short and succeeded and text.strip() else status,
        text=text,
        data=session_result(session, view, status, note),
    )
    if view.exit is not None:
        await call.sessions.mark_reported(session)
    return reply


def shell_reply(
    ran: Ran,
    output: Cropped,
    heading: str | None = None,
    matched: str | None = None,
    *,
    is_short: bool = False,
) -> Reply:
    next_calls: tuple[str, ...] = ("terminal_wait",)
    if ran.screen_size is not None:
        next_calls = SCREEN_CALLS
    elif ran.completed.state == "waiting_for_input":
        next_calls = ("terminal_continue",)
    return command_reply(
        ran,
        output,
        next_calls=next_calls,
        stop="terminal_stop",
        heading=unknown_end(ran.completed) if heading is None else heading,
        matched=matched,
        shows_id=heading is None,
        is_short=is_short and has_ended(ran.completed) and ran.completed.exit_code == 0,
    )
