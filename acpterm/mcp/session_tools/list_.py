"""`terminal_list`: list the active sessions."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from acpterm.api.errors import RequestError
from acpterm.client.user.format import background_line
from acpterm.mcp.call import Call
from acpterm.mcp.sessions import Session
from acpterm.mcp.states import call_text
from acpterm.mcp.tool import Reply, Tool

_ROW: Final = "{:<12} | {:<30} | {:<8} | {:<7} | {}"
_RULE: Final = "-------------|--------------------------------|----------|---------|--------"
_COMMAND_WIDTH: Final = 30


class Params(Struct):
    """The parameters of `terminal_list`: none."""


class Listed(Struct, kw_only=True):
    """A session in the list: its command, and whether its program runs or waits for input."""

    id: str
    command: str
    position: Annotated[int, Meta(description="up to where its output was read, in bytes")]
    running: bool
    waitingForInput: bool | None  # noqa: N815
    uptime: Annotated[float, Meta(description="seconds since its start")]
    cwd: str
    background: Annotated[list[str], Meta(description="what its command has left running")]


class Sessions(Struct, kw_only=True):
    """The structured content of `terminal_list`."""

    status: Annotated[str, Meta(description="how many run, and what can be done next")]
    sessions: list[Listed]


async def _execute(call: Call, params: Params) -> Reply:
    del params
    listed: list[Listed] = []
    for session in call.sessions.listed():
        try:
            found = await _listed(session)
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
            data=Sessions(status=status, sessions=[]),
        )
    running = sum(each.running for each in listed)
    waiting = [each.id for each in listed if each.waitingForInput]
    waits = f", {', '.join(waiting)} waiting for input" if waiting else ""
    rows = [
        _ROW.format(
            each.id,
            _short(each.command),
            each.position,
            "Yes" if each.running or each.background else "No",
            f"{each.uptime:.0f}s",
        )
        for each in listed
    ]
    header = _ROW.format("ID", "Command", "Position", "Running", "Uptime")
    any_of_them = f"{call_text('terminal_wait')} waits for any of them"
    status = f"[{running} running{waits}{asks} · {any_of_them}]"
    return Reply(
        state=status,
        text="\n".join(["Active Terminal Sessions:", header, _RULE, *rows]),
        data=Sessions(status=status, sessions=listed),
    )


async def _listed(session: Session) -> Listed:
    now = await session.terminal.read(session.position, max_bytes=1)
    session.exit = now.exit
    return Listed(
        id=session.id,
        command=session.command,
        position=session.position,
        running=now.exit is None,
        waitingForInput=now.waiting_for_input,
        uptime=round(session.uptime, 3),
        cwd=session.cwd,
        background=[background_line(each) for each in now.exit.background] if now.exit else [],
    )


def _short(command: str) -> str:
    """Return a command as one line of at most `_COMMAND_WIDTH` characters."""
    line = " ".join(command.split())
    return line if len(line) <= _COMMAND_WIDTH else f"{line[: _COMMAND_WIDTH - 1]}…"


TOOL = Tool(
    name="terminal_list",
    description="List the active terminal sessions: id, command, position, whether it runs, age.",
    params=Params,
    result=Sessions,
    execute=_execute,
    reads_only=True,
    idempotent=True,
)
