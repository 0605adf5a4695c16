"""`terminal_list`: list the active sessions."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from acpterm.api.errors import RequestError
from acpterm.commands.format import background_line
from acpterm.mcp.call import Call
from acpterm.mcp.session_tools.wait import awaited
from acpterm.mcp.sessions import TerminalSession
from acpterm.mcp.states import call_text
from acpterm.mcp.tool import Reply, Tool

_ROW: Final = "{:<12} | {:<30} | {:<8} | {:<7} | {}"
_RULE: Final = "-------------|--------------------------------|----------|---------|--------"
_COMMAND_WIDTH: Final = 30


class SessionListParams(Struct):
    """The parameters of `terminal_list`: none."""


class Listed(Struct, kw_only=True):
    """A session in the list: its command, and whether its program runs or waits for input."""

    id: str
    command: Annotated[str, Meta(description="its command, or the name of its idle shell")]
    position: Annotated[int, Meta(description="up to where its output was read, in bytes")]
    running: bool
    waitingForInput: bool | None  # noqa: N815
    idle: Annotated[bool, Meta(description="whether it is a shell at its prompt, or an editor")]
    uptime: Annotated[float, Meta(description="seconds since its start")]
    cwd: str
    background: Annotated[list[str], Meta(description="what its command has left running")]


class ListedSessions(Struct, kw_only=True):
    status: Annotated[str, Meta(description="how many run, and what can be done next")]
    sessions: list[Listed]


async def _execute(call: Call, params: SessionListParams) -> Reply:
    del params
    listed: list[Listed] = []
    for session in call.sessions.listed():
        try:
            found = await _listed(call, session)
        except RequestError:  # the user has removed the terminal
            call.sessions.forget(session)
            continue
        if session.runs_on or not session.is_reported:
            listed.append(found)
    pending = call.starts.pending()
    asks = f" · waiting for the user's approval: {', '.join(pending)}" if pending else ""
    if not listed:
        status = f"[no sessions{asks} · {call_text('terminal_start', command=...)}]"
        return Reply(
            state=status,
            text="No active terminal sessions.",
            data=ListedSessions(status=status, sessions=[]),
        )
    running = sum(each.running or bool(each.background) for each in listed)
    waiting = [each.id for each in listed if each.waitingForInput]
    waits = f", {', '.join(waiting)} waiting for input" if waiting else ""
    rows = [
        _ROW.format(
            each.id,
            _short(each.command),
            each.position,
            "Yes" if each.background else "Idle" if each.idle else "Yes" if each.running else "No",
            f"{each.uptime:.0f}s",
        )
        for each in listed
    ]
    header = _ROW.format("ID", "Command", "Position", "Running", "Uptime")
    wait = f" · {call_text('terminal_wait')} waits for any of them" if awaited(call) else ""
    status = f"[{running} running{waits}{asks}{wait}]"
    return Reply(
        state=status,
        text="\n".join(["Active Terminal Sessions:", header, _RULE, *rows]),
        data=ListedSessions(status=status, sessions=listed),
    )


async def _listed(call: Call, session: TerminalSession) -> Listed:
    is_over = call.shells.is_busy(session) and not await call.shells.catch_up(session)
    now = await session.terminal.read(session.position, max_bytes=1)
    session.exit = now.exit
    asks = now.waiting_for_input
    shell = call.shells.idle_name(session)
    is_free = shell is not None
    background = [] if now.exit is None else [*now.exit.background]
    if asks or is_free or is_over:
        info = await session.terminal.info(background=is_free or is_over)
        asks = info.waiting_for_input
        background = background or info.background or []
    return Listed(
        id=session.id,
        command=f"shell {shell}" if is_free else session.command,
        position=session.position,
        running=now.exit is None and not is_over,
        waitingForInput=False if is_free or is_over else asks,
        idle=is_free or (bool(now.waiting_for_input) and not asks and not is_over),
        uptime=round(session.uptime, 3),
        cwd=session.cwd,
        background=[background_line(each) for each in background],
    )


def _short(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= _COMMAND_WIDTH else f"{line[: _COMMAND_WIDTH - 1]}…"


TOOL = Tool(
    name="terminal_list",
    description="List the active terminal sessions: id, command, position, whether it runs, age.",
    params=SessionListParams,
    result=ListedSessions,
    execute=_execute,
    reads_only=True,
    idempotent=True,
)
