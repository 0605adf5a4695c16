"""`terminal_output`: return all retained output of a session, a page of it, or matching lines."""

from typing import Annotated, Final

from msgspec import Meta, Struct, field

from acpterm.acp.agent_api import Natural, Positive
from acpterm.api.results import Exit
from acpterm.mcp.call import Call
from acpterm.mcp.patterns import ModelPattern
from acpterm.mcp.sessions import TerminalSession
from acpterm.mcp.states import background_parts, call_text
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.waiting import read_all
from acpterm.runtime.lines import split_lines

PAGE_CHARS_MAX: Final = 30_000


class SessionOutputParams(Struct, kw_only=True):
    session_id: Annotated[str, Meta(description="The terminal session ID")] = field(
        name="sessionId"
    )
    offset: Annotated[
        int | None, Meta(description="Lines to skip; negative: begin so many lines before the end")
    ] = None
    limit: Annotated[Positive | None, Meta(description="Maximum number of lines")] = None
    grep: Annotated[
        str | None, Meta(description="Only lines that match this regular expression, numbered")
    ] = None
    since: Annotated[
        Natural | None, Meta(description="Only output from this position on, in bytes")
    ] = None


class OutputPage(Struct, kw_only=True):
    """The structured content of `terminal_output`. With `grep`, only matching lines are counted."""

    id: str
    status: Annotated[str, Meta(description="whether it runs, and how to read the rest")]
    output: str
    position: int
    firstLine: int  # noqa: N815
    lines: int
    totalLines: int  # noqa: N815
    remainingLines: int  # noqa: N815
    truncated: Annotated[
        bool, Meta(description="whether the beginning of the output is no longer retained")
    ]
    complete: bool


class _Text(Struct):
    text: str
    position: int
    is_truncated: bool
    exit: Exit | None


async def _execute(call: Call, params: SessionOutputParams) -> Reply:
    call.approval_s = 0
    session = await call.get(params.session_id)
    retained = await _read(session, params.since)
    is_paged = (params.offset, params.limit, params.grep) != (None, None, None)
    lines = split_lines(retained.text)
    if is_paged:
        lines = [piece for line in lines for piece in _pieces(line)]
    numbered = list(enumerate(lines))
    if params.grep is not None:
        numbered = await ModelPattern(params.grep).matching(lines)
    start, chosen = _page(numbered, params)
    found = "".join(f"{n + 1}: {line}" if params.grep is not None else line for n, line in chosen)
    remaining = len(numbered) - start - len(chosen)
    heading = f"Terminal Session: {session.id}\n"
    if is_paged:
        kind = "Matches" if params.grep is not None else "Lines"
        heading += f"{kind} {_range(start, len(chosen))} of {len(numbered)}:\n"
    else:
        heading += "Complete Output:\n"
    status = _state(session, retained, params, start + len(chosen), remaining)
    return Reply(
        state=status,
        text=heading + found,
        data=OutputPage(
            id=session.id,
            status=status,
            output=found,
            position=retained.position,
            firstLine=start,
            lines=len(chosen),
            totalLines=len(numbered),
            remainingLines=remaining,
            truncated=retained.is_truncated,
            complete=retained.exit is not None,
        ),
    )


async def _read(session: TerminalSession, since: int | None) -> _Text:
    if since is None:
        whole = await session.terminal.output()
        text = session.clean(whole.text)
        return _Text(text, whole.position, whole.truncated, whole.exit)
    text, lost, last = await read_all(session.terminal, since)
    return _Text(session.clean(text), last.position, lost > 0, last.exit)


def _pieces(line: str) -> list[str]:
    """Return a line in pieces that fit on a page, since one line may be all the output."""
    return [line[at : at + PAGE_CHARS_MAX] for at in range(0, len(line), PAGE_CHARS_MAX)]


def _page(
    lines: list[tuple[int, str]], params: SessionOutputParams
) -> tuple[int, list[tuple[int, str]]]:
    """Return the index in `lines` of the page's first line, and its lines with their numbers."""
    if (params.offset, params.limit, params.grep) == (None, None, None):
        return 0, lines
    offset = params.offset or 0
    start = max(0, len(lines) + offset) if offset < 0 else min(offset, len(lines))
    chosen: list[tuple[int, str]] = []
    room = PAGE_CHARS_MAX
    for number, line in lines[start : None if params.limit is None else start + params.limit]:
        room -= len(line)
        if room < 0 and chosen:
            break
        chosen.append((number, line))
    return start, chosen


def _range(start: int, count: int) -> str:
    return "none" if count == 0 else f"{start + 1}-{start + count}"


def _state(
    session: TerminalSession, text: _Text, params: SessionOutputParams, end: int, remaining: int
) -> str:
    what = "running" if text.exit is None else "ended"
    parts = [f"{what}, {text.position} bytes of output so far"]
    if text.exit is not None:
        parts += background_parts(text.exit.background, "terminal_stop")
    if text.is_truncated:
        parts.append("the beginning is no longer retained")
    if remaining > 0:
        more: dict[str, object] = {"sessionId": session.id, "offset": end}
        more |= {"since": params.since} if params.since is not None else {}
        more |= {"grep": params.grep} if params.grep is not None else {}
        parts.append(f"{remaining} more lines: {call_text('terminal_output', **more)}")
    return f"[{' · '.join(parts)}]"


TOOL = Tool(
    name="terminal_output",
    description=(
        "Get the complete retained output of a terminal session, without waiting or truncation; "
        "or a page of it (offset, limit), its end (a negative offset), or the lines that match "
        "(grep). Use it if the incremental output of terminal_start or terminal_continue gets "
        "confusing, or if a result says that something was left out."
    ),
    params=SessionOutputParams,
    result=OutputPage,
    execute=_execute,
    reads_only=True,
    idempotent=True,
)
