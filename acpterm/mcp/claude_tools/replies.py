"""Functions and limits for the results of the tools of `--tools claude`.

These are acpterm's tools with the names and schemas of Claude Code's tools.
"""

from typing import Final

from acpterm.mcp.call import Call
from acpterm.mcp.cropping import crop
from acpterm.mcp.sessions import Session
from acpterm.mcp.states import View, says_more, session_result, state_line
from acpterm.mcp.tool import Reply

CONTINUED_BY: Final = ("BashOutput", "bash_id")
OUTPUT_CHARS_MAX: Final = 30_000
LINE_CHARS_MAX: Final = 8192
"""A longer incomplete line is reported in pieces."""
NO_KEYS: Final = "no tool of this set presses keys"
REST: Final = "run the command again with its output in a file, and read the file"
"""How to read output that was left out: no tool of this set returns earlier output."""


def next_calls(session: Session, screen_size: str | None) -> tuple[str, ...]:
    """Return what can follow while a command waits for input: no tool of this set can type."""
    keys = () if screen_size is None else (NO_KEYS,)
    return (*keys, f"the user can: acpterm attach {session.id}", "KillShell")


async def session_reply(call: Call, session: Session, view: View, text: str, note: str) -> Reply:
    """Return the result about a background shell: `text`, and what else is known."""
    calls = next_calls(session, view.screen_size)
    status = state_line(session, view, next_calls=calls, stop="KillShell")
    reply = Reply(
        state=status if says_more(session, view) else None,
        text=text,
        data=session_result(session, view, status, note),
    )
    if view.exit is not None and not view.exit.background:
        await call.sessions.remove(session)
    return reply


def crop_output(view: View) -> str:
    """Crop `view` to `OUTPUT_CHARS_MAX`; return how to read the output that was left out."""
    view.cropped = crop(view.text, OUTPUT_CHARS_MAX, view.lost)
    return REST
