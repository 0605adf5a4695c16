"""`read_terminal`: return the end of a terminal's output."""

from msgspec import Struct

from acpterm.acp.pool import HISTORY_BYTES
from acpterm.api.errors import RequestError
from acpterm.mcp.call import Call
from acpterm.mcp.pool_tools.entries import TerminalParams
from acpterm.mcp.tool import Reply, Tool, as_json


class History(Struct, kw_only=True):
    """The result of `read_terminal`."""

    terminalId: str  # noqa: N815
    history: str


async def _execute(call: Call, params: TerminalParams) -> Reply:
    session = await call.get(params.terminal_id)
    try:
        text = (await session.terminal.output()).text
    except RequestError:  # a terminal of the user, which agents can only read by position
        begin = (await session.terminal.info()).position - HISTORY_BYTES
        text = (await session.terminal.read(max(0, begin))).text
    found = History(terminalId=params.terminal_id, history=last_bytes(text, HISTORY_BYTES))
    return Reply(text=as_json(found), data=found)


def last_bytes(text: str, limit: int) -> str:
    """Return the end of a text, at most `limit` bytes, from the start of a line if possible."""
    data = text.encode()
    if len(data) <= limit:
        return text
    end = data[-limit:]
    if data[-limit - 1 : -limit] != b"\n":
        line_end = end.find(b"\n")
        if 0 <= line_end < len(end) - 1:
            end = end[line_end + 1 :]
    # If the last line is longer than `limit`, the cut may be within a character.
    return end.decode(errors="ignore")


TOOL = Tool(
    name="read_terminal",
    description="Get the output history of a terminal: the last 64 KiB, from the start of a line.",
    params=TerminalParams,
    result=History,
    execute=_execute,
    reads_only=True,
    idempotent=True,
)
