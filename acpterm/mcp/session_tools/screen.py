"""`terminal_screen`: return the screen of one terminal as a grid of text."""

from typing import Annotated

from msgspec import Meta, Struct, field

from acpterm.api.errors import RequestError
from acpterm.mcp.call import Call
from acpterm.mcp.states import call_text
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.tool_error import ToolError


class ScreenParams(Struct, kw_only=True):
    session_id: Annotated[str, Meta(description="The terminal session ID")] = field(
        name="sessionId"
    )
    colors: Annotated[bool, Meta(description="Keep colours, as escape sequences")] = False


class Grid(Struct, kw_only=True):
    id: str
    status: Annotated[str, Meta(description="size, cursor, and what can be done next")]
    rows: Annotated[list[str], Meta(description="the rows from top to bottom")]
    cols: int
    lines: int
    cursor: Annotated[list[int], Meta(description="column and row of the cursor, counted from 0")]
    cursorVisible: bool  # noqa: N815
    alternate: Annotated[bool, Meta(description="whether a full-screen program is shown")]
    title: str | None
    position: int
    screenHash: Annotated[  # noqa: N815
        str, Meta(description="the same as long as contents and cursor are the same")
    ]


async def _execute(call: Call, params: ScreenParams) -> Reply:
    call.approval_s = 0
    session = await call.get(params.session_id)
    try:
        screen = await session.terminal.screen()
    except RequestError as error:
        raise ToolError(f"the screen of {session.id} cannot be shown: {error}") from error
    col, row = screen.cursor
    kind = "alternate screen (full-screen program)" if screen.alternate else "main screen"
    keys = call_text("terminal_continue", sessionId=session.id, keys=...)
    rows = screen.styled_rows if params.colors else screen.rows
    status = (
        f"[{screen.cols}x{screen.lines}, {kind}, cursor at column {col}, row {row}, "
        f"hash {screen.hash} · {keys}]"
    )
    return Reply(
        state=status,
        text="\n".join(rows).rstrip("\n"),
        data=Grid(
            id=session.id,
            status=status,
            rows=rows,
            cols=screen.cols,
            lines=screen.lines,
            cursor=[col, row],
            cursorVisible=screen.cursor_visible,
            alternate=screen.alternate,
            title=screen.title,
            position=screen.position,
            screenHash=screen.hash,
        ),
    )


TOOL = Tool(
    name="terminal_screen",
    description=(
        "Get the screen of a terminal session as it looks now: the grid of text, the cursor, "
        "whether a full-screen program (vim, less, top) is shown, and a hash to notice changes."
    ),
    params=ScreenParams,
    result=Grid,
    execute=_execute,
    reads_only=True,
    idempotent=True,
)
