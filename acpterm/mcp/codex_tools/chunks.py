"""The result of the tools for Codex: a chunk of output, and a number if the program continues.

The number identifies the terminal session: 7 for the session `term-7`.
"""

import secrets
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from acpterm.mcp.call import Call
from acpterm.mcp.cropping import crop
from acpterm.mcp.sessions import Session
from acpterm.mcp.states import View, call_text, says_more, state_line
from acpterm.mcp.tool import Reply

CHARS_PER_TOKEN: Final = 4
DEFAULT_TOKENS: Final = 10_000
_CHUNK_ID_BYTES: Final = 3
_KEYS: Final = r'keys: "\u001b" Escape, "\u001b[A" Up, "\u001b[B" Down, "\r" Enter, "\u0003" Ctrl-C'


class Chunk(Struct, kw_only=True, omit_defaults=True):
    """The structured content of `exec_command` and `write_stdin`."""

    status: Annotated[
        str | UnsetType, Meta(description="What the program does, and what can be done next.")
    ] = UNSET
    wall_time_seconds: Annotated[
        float, Meta(description="Elapsed wall time spent waiting for output in seconds.")
    ]
    output: Annotated[str, Meta(description="Command output text, possibly truncated.")]
    chunk_id: Annotated[
        str | UnsetType, Meta(description="Chunk identifier included when reported.")
    ] = UNSET
    exit_code: Annotated[
        int | UnsetType, Meta(description="Process exit code when the command finished.")
    ] = UNSET
    session_id: Annotated[
        int | UnsetType,
        Meta(description="Session identifier to pass to write_stdin while it runs."),
    ] = UNSET
    original_token_count: Annotated[
        int | UnsetType, Meta(description="Approximate token count before truncation.")
    ] = UNSET


async def chunk_reply(
    call: Call, session: Session, view: View, tokens: float, waited_s: float
) -> Reply:
    """Return the result with the new output of a session, cropped to about `tokens` tokens."""
    end = view.exit
    text = view.text
    output = crop(text, max(1, round(tokens)) * CHARS_PER_TOKEN, view.lost)
    lost = 0 if view.lost is None else view.lost.bytes
    number = int(session.id.rpartition("-")[2])
    note = call_text("exec_command", cmd="… > file") + ", and read the file"
    next_calls = () if view.screen_size is None else (f"write_stdin with {_KEYS}",)
    runs = end is None or bool(end.background)
    left = "" if end is None else " ".join(str(each.pid) for each in end.background)
    status = state_line(session, view, next_calls=next_calls, stop=f"kill {left}")
    chunk = Chunk(
        status=status,
        chunk_id=secrets.token_hex(_CHUNK_ID_BYTES),
        wall_time_seconds=round(waited_s, 4),
        output=output.with_note(note),
        exit_code=UNSET if end is None else end.shell_status,
        session_id=number if runs else UNSET,
        original_token_count=(len(text) + lost) // CHARS_PER_TOKEN,
    )
    state = status if says_more(session, view) else None
    reply = Reply(state=state, text=_text(chunk), data=chunk)
    if not runs:
        await call.sessions.remove(session)
    return reply


def _text(chunk: Chunk) -> str:
    lines = [f"Chunk ID: {chunk.chunk_id}", f"Wall time: {chunk.wall_time_seconds:.4f} seconds"]
    if chunk.exit_code is not UNSET:
        lines.append(f"Process exited with code {chunk.exit_code}")
    if chunk.session_id is not UNSET:
        lines.append(f"Process running with session ID {chunk.session_id}")
    lines += [f"Original token count: {chunk.original_token_count}", "Output:", chunk.output]
    return "\n".join(lines)
