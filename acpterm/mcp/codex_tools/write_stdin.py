"""`write_stdin`: type text, if any, into a terminal session; wait; return the new output.

The wait ends when the session's program exits or waits for input, or at a time limit. If an earlier
result has reported already that the program waits for input, that does not end it.
"""

from typing import Annotated, Final

import anyio
from msgspec import UNSET, Meta, Struct, UnsetType

from acpterm.mcp.call import Call
from acpterm.mcp.codex_tools.chunks import DEFAULT_TOKENS, Chunk, chunk_reply
from acpterm.mcp.codex_tools.exec_command import YIELD_MAX_MS, YIELD_MIN_MS
from acpterm.mcp.sessions import Session
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.waiting import read_new, type_into, wait_until

POLL_MIN_MS: Final = 5_000
POLL_MAX_MS: Final = 300_000


class Params(Struct, kw_only=True):
    """The parameters of `write_stdin`."""

    session_id: Annotated[
        float, Meta(description="Identifier of the running unified exec session.")
    ]
    chars: Annotated[str, Meta(description="Bytes to write to stdin (may be empty to poll).")] = ""
    yield_time_ms: Annotated[
        float | UnsetType,
        Meta(description="How long to wait (in milliseconds) for output before yielding."),
    ] = UNSET
    max_output_tokens: Annotated[
        float,
        Meta(description="Maximum number of tokens to return. Excess output is truncated."),
    ] = DEFAULT_TOKENS


async def _execute(call: Call, params: Params) -> Reply:
    began = anyio.current_time()
    session = await call.get(f"{params.session_id:g}")
    wait_ms = YIELD_MIN_MS if params.yield_time_ms is UNSET else params.yield_time_ms
    if params.chars:
        async with call.turn(session):
            await type_into(session, params.chars)
            await anyio.sleep(YIELD_MIN_MS / 1000)
            await _wait(call, session, min(wait_ms, YIELD_MAX_MS) - YIELD_MIN_MS)
            view = await read_new(call, session)
    else:
        await _wait(call, session, min(max(wait_ms, POLL_MIN_MS), POLL_MAX_MS))
        async with call.turn(session):
            view = await read_new(call, session)
    waited = anyio.current_time() - began
    return await chunk_reply(call, session, view, params.max_output_tokens, waited)


async def _wait(call: Call, session: Session, wait_ms: float) -> None:
    await wait_until(call, session, input_since=session.reported_waiting, timeout_s=wait_ms / 1000)


TOOL = Tool(
    name="write_stdin",
    description=(
        "Writes characters to an existing unified exec session and returns recent output."
    ),
    params=Params,
    result=Chunk,
    execute=_execute,
    destructive=True,
)
