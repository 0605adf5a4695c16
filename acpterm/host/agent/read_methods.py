"""The handlers of the agents' methods that list, describe and read terminals.

An agent sees the terminals of the session that it names: promoted ones too, but no released ones.
With the setting `agents_read_user_terminals` it can also read terminals that the user created, but
never those of other agents. Descriptions leave out what only concerns the user: the connection's
id, windows and recordings. If the agent may not read a terminal, or there is no such terminal, the
handlers raise `RpcError` (-32002).
"""

from collections.abc import Coroutine
from typing import Any

import msgspec
import trio

from acpterm.acp.agent_api import AgentGetRequest, AgentListRequest, ReadRequest, ReadResponse
from acpterm.acp.terminal import TerminalRequest
from acpterm.acp.user_api import ListResponse, ScreenResponse, TerminalInfo
from acpterm.host import terminal_ops
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.entry import TerminalEntry
from acpterm.host.host_state import HostState


def agents_info(host: HostState, entry: TerminalEntry) -> TerminalInfo:
    """Return what an agent may know about a terminal: see `for_agent`."""
    return for_agent(host.terminal_info(entry))


def for_agent(info: TerminalInfo) -> TerminalInfo:
    """Return `info` without its connection, windows and recording, which only concern the user."""
    return msgspec.structs.replace(info, connection=None, attached=0, recording=None)


async def list_own(connection: AgentConnection, params: AgentListRequest) -> ListResponse:
    """`_acpterm/terminal/list`: return the session's terminals whose ids are valid.

    With `left`, what the session's commands have left running in released ones follows. The user's
    terminals follow, if the settings allow it and the request does not exclude them.
    """
    if params.left:
        await connection.host.background.check_all()
    found = []
    for entry in _listed(connection, params):
        found.append(agents_info(connection.host, entry))
        await trio.lowlevel.checkpoint()
    # Some of the terminals may have been released meanwhile.
    valid = {entry.id for entry in _listed(connection, params)}
    return ListResponse([info for info in found if info.terminal_id in valid])


def _listed(connection: AgentConnection, params: AgentListRequest) -> list[TerminalEntry]:
    session = connection.sessions.get(params.session_id)
    own = [] if session is None else session.entries.values()
    left = connection.host.registry.left_by(connection.id, params.session_id) if params.left else ()
    return [*own, *left, *(connection.users_terminals() if params.user else ())]


def get(
    connection: AgentConnection, params: AgentGetRequest
) -> TerminalInfo | Coroutine[Any, Any, TerminalInfo]:
    """`_acpterm/terminal/get`: return one terminal."""
    host, entry = connection.host, connection.readable(params)

    async def get_with_background() -> TerminalInfo:
        return for_agent(await terminal_ops.info_with_background(host, entry))

    return get_with_background() if params.background else agents_info(host, entry)


def read(connection: AgentConnection, params: ReadRequest) -> Coroutine[Any, Any, ReadResponse]:
    """`_acpterm/terminal/read`: return the output after a position.

    If there is no such output yet, wait for output up to `waitMs` milliseconds. If the terminal is
    released during the wait, the response is sent once the program has exited.
    """
    return terminal_ops.read(connection, connection.readable(params), params)


def screen(
    connection: AgentConnection, params: TerminalRequest
) -> Coroutine[Any, Any, ScreenResponse]:
    """`_acpterm/terminal/screen`: return the current screen, with colours."""
    return terminal_ops.screen(connection.sender, connection.readable(params).terminal)
