"""What the results of several session tools have in common."""

from acpterm.mcp.call import Call
from acpterm.mcp.sessions import Session
from acpterm.mcp.states import View, call_text, session_result, state_line
from acpterm.mcp.tool import Reply


def how_to_read(session: Session, view: View) -> str:
    """Return a tool call as text. The call returns the output that `view` leaves out."""
    since = {"since": view.since} if view.since else {}
    return call_text(
        "terminal_output", sessionId=session.id, **since, offset=view.cropped.head_lines
    )


def next_calls(session: Session, view: View) -> tuple[str, ...]:
    """Return the tool calls that a result suggests to the model, as text.

    `view` says whether the program waits for input. The caller uses the calls only while the
    program runs.
    """
    if view.is_waiting:
        return (call_text("terminal_continue", sessionId=session.id, stdin=...),)
    if view.stopped is not None:
        return (call_text("terminal_stop", sessionId=session.id),)
    return (
        call_text("terminal_wait", sessionId=session.id),
        call_text("terminal_stop", sessionId=session.id),
    )


async def session_reply(call: Call, session: Session, view: View, heading: str) -> Reply:
    """Return the result about a session; its text is `heading`, then the output in `view`.

    If the program has ended, record that its end was reported.
    """
    note = how_to_read(session, view)
    stop = call_text("terminal_stop", sessionId=session.id)
    status = state_line(session, view, next_calls=next_calls(session, view), stop=stop)
    reply = Reply(
        state=status,
        text=f"{heading}{view.cropped.with_note(note)}",
        data=session_result(session, view, status, note),
    )
    if view.exit is not None:
        await call.sessions.mark_reported(session)
    return reply
