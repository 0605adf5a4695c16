"""The tools of `--tools pool`: those of a PTY pool, another product's set of background terminals.

Agents create background terminals, and can read those of the user. A terminal of the user cannot be
killed, not even if it was promoted during the call; one that does not exist counts as killed.
"""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, field

from acpterm.acp.pool import HISTORY_BYTES, NAME, PoolTerminal, pool_terminal
from acpterm.acp.user_api import TerminalInfo
from acpterm.api.errors import RequestError
from acpterm.mcp.call import Call
from acpterm.mcp.sessions import SessionLaunch, TerminalSession
from acpterm.mcp.tool import Reply, Tool, as_json
from acpterm.mcp.tool_error import ToolError
from acpterm.mcp.waiting import removed_on_failure


class TerminalParams(Struct, kw_only=True):
    terminal_id: Annotated[str, Meta(description="The id of the terminal")] = field(
        name="terminalId"
    )


def entry_of(info: TerminalInfo, session: TerminalSession | None) -> PoolTerminal:
    """Return the terminal as the pool tools describe it; `session` has the command as words."""
    return pool_terminal(info, None if session is None else session.argv)


class ListParams(Struct):
    """The parameters of `list_terminals`: none."""


class TerminalList(Struct, kw_only=True):
    terminals: list[PoolTerminal]


async def _list(call: Call, params: ListParams) -> Reply:
    del params
    client = await call.sessions.client()
    known = {session.terminal.id: session for session in call.sessions.all()}
    entries = [
        entry_of(info, known.get(info.terminal_id))
        for info in await client.terminals()
        if info.exit_status is None or info.background is not UNSET
    ]
    return Reply(text=as_json(entries), data=TerminalList(terminals=entries))


LIST = Tool(
    name="list_terminals",
    description=(
        "List all terminal sessions with metadata: id, cwd, owner (user or agent), visible, "
        "createdAt, and the command of those that an agent spawned."
    ),
    params=ListParams,
    result=TerminalList,
    execute=_list,
    reads_only=True,
    idempotent=True,
)


class History(Struct, kw_only=True):
    terminalId: str  # noqa: N815
    history: str


async def _read(call: Call, params: TerminalParams) -> Reply:
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


READ = Tool(
    name="read_terminal",
    description="Get the output history of a terminal: the last 64 KiB, from the start of a line.",
    params=TerminalParams,
    result=History,
    execute=_read,
    reads_only=True,
    idempotent=True,
)


Words = Annotated[list[str], Meta(min_length=1)]


class SpawnParams(Struct, kw_only=True):
    command: Annotated[Words, Meta(description="The program and its arguments")]
    cwd: Annotated[str | None, Meta(description="Working directory, an absolute path")] = None


async def _spawn(call: Call, params: SpawnParams) -> Reply:
    program, *args = params.command
    session = await call.start(SessionLaunch(program, args, cwd=params.cwd, name=NAME))
    session.argv = params.command
    async with removed_on_failure(call, session):
        entry = entry_of(await session.terminal.info(), session)
    return Reply(text=as_json(entry), data=entry)


SPAWN = Tool(
    name="spawn_background_terminal",
    description=(
        "Spawn a background terminal for a dev server, tests and the like. At most 3 in a minute "
        "and 5 at once; closed after 5 minutes without activity, unless promoted. Check "
        "list_terminals first for one that exists already."
    ),
    params=SpawnParams,
    result=PoolTerminal,
    execute=_spawn,
    destructive=True,
)


async def _promote(call: Call, params: TerminalParams) -> Reply:
    session = await call.get(params.terminal_id)
    entry = entry_of(await session.terminal.promote(), session)
    return Reply(text=as_json(entry), data=entry)


PROMOTE = Tool(
    name="promote_terminal",
    description=(
        "Promote a background terminal: it becomes visible, and the user's. You can still read "
        "it, but no longer kill it, and it does not time out. Use it when a dev server is ready."
    ),
    params=TerminalParams,
    result=PoolTerminal,
    execute=_promote,
    idempotent=True,
)


NOT_OWNED: Final = "Cannot kill visible or user-owned terminals"


class KilledTerminal(Struct, kw_only=True):
    terminated: bool
    id: str


async def _kill(call: Call, params: TerminalParams) -> Reply:
    killed = KilledTerminal(terminated=True, id=params.terminal_id)
    reply = Reply(text=as_json(killed), data=killed)
    session = await call.sessions.find(params.terminal_id)
    if session is None:
        return reply
    info = await _info(session)
    if info is not None and info.owner != "agent":
        raise ToolError(NOT_OWNED)
    if info is not None:
        try:
            await session.terminal.kill()
        except RequestError:
            info = await _info(session)
            if info is not None and info.owner != "agent":
                raise ToolError(NOT_OWNED) from None
            if info is not None:
                raise
    await call.sessions.remove(session)
    return reply


async def _info(session: TerminalSession) -> TerminalInfo | None:
    try:
        return await session.terminal.info()
    except RequestError:
        return None


KILL = Tool(
    name="kill_terminal",
    description=(
        "Kill a background terminal owned by this agent. Cannot kill visible or user-owned "
        "terminals. Killing a terminal that does not exist succeeds."
    ),
    params=TerminalParams,
    result=KilledTerminal,
    execute=_kill,
    destructive=True,
    idempotent=True,
)
