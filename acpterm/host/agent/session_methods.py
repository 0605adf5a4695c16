"""What an agent says of itself and its sessions: `initialize`, `session/update` and `cancel`."""

from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec
import trio
from msgspec import UNSET, Raw, UnsetType

from acpterm import __version__
from acpterm.acp import (
    CancelNotification,
    Implementation,
    InitializeAnswer,
    InitializeMeta,
    InitializeRequest,
    OtherUpdate,
    ResumeMeta,
    SessionNotification,
    Terminal,
    host_answer,
    own_meta,
    read_update,
)
from acpterm.acp.agent_api import OWN
from acpterm.acp.raw_json import members
from acpterm.acp.terminal_updates import V2_KINDS, from_v2
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.session import Session
from acpterm.host.events import Event
from acpterm.host.launch.exec_context import requested_context
from acpterm.host.registry import TerminalEntry
from acpterm.pty.processes import now as boot_time
from acpterm.terminal.status import EndedBy

# Seconds that an agent has after a cancel to release its terminals itself.
RELEASE_AFTER_CANCEL_S: Final = 2.0
# Characters of the ids of tool calls and terminals.
ID_MAX: Final = 4096
# Characters of an agent's name.
_NAME: Final = 100

# What this host can do besides ACP v1; documented in docs/protocol.md.
EXTENSIONS: Final = {
    "methods": [
        "_acpterm/terminal/read",
        "_acpterm/terminal/write",
        "_acpterm/terminal/resize",
        "_acpterm/terminal/signal",
        "_acpterm/session/set",
    ],
    "createMeta": ["cols", "rows", "timeoutMs", "shell", "format"],
    "outputMeta": ["waitingForInput"],
    "exitStatusMeta": ["endedBy", "wallMs", "cpuMs", "maxRssBytes"],
}


def initialize(connection: AgentConnection, params: InitializeRequest) -> InitializeAnswer:
    """`initialize`: here the agent asks, since it is the one that connects.

    With the secret of a connection that was lost it takes that one's place.
    """
    options = own_meta(params.meta, InitializeMeta)
    resumed: bool | UnsetType = UNSET
    if options and options.resume is not None:
        found = connection.resumption.resume(connection, options.resume)
        connection, resumed = found or connection, found is not None
    if options and options.relay:
        connection.add_relayed_agent()
    connection.context = requested_context(connection.context, params)
    connection.agent.name = agent_name(params.client_info) or connection.agent.name
    connection.mark_changed()
    answer = host_answer(__version__, EXTENSIONS)
    answer.meta = {OWN: ResumeMeta(resume=connection.secret, resumed=resumed)}
    return answer


def agent_name(info: Raw | UnsetType) -> str | None:
    """Give the name of whoever asks, in its `clientInfo`, if it has said it."""
    with suppress(msgspec.DecodeError):
        if not isinstance(info, UnsetType):
            return msgspec.json.decode(info, type=Implementation).name[:_NAME]
    return None


def update(connection: AgentConnection, params: SessionNotification) -> None:
    """`session/update`: remember its tool calls, which terminals they show, and the agent's own."""
    said = read_update(params.update)
    if isinstance(said, OtherUpdate):
        if said.kind in V2_KINDS:
            session = connection.session(params.session_id)
            connection.owned(session)
            session.record_terminal_updates(from_v2(said.kind, members(params.update)))
            connection.remember(session)
        return
    if len(said.tool_call_id) > ID_MAX:
        # Such an id would be remembered: what the session holds is bounded.
        return
    shown = None
    if not isinstance(said.content, UnsetType):
        found = [item.terminal_id for item in said.content or () if isinstance(item, Terminal)]
        shown = [identifier for identifier in found if len(identifier) <= ID_MAX]
    session = connection.session(params.session_id)
    connection.owned(session)
    fields = msgspec.json.decode(params.update, type=dict[str, Raw])
    session.record_update(said.tool_call_id, fields, shown)
    connection.remember(session)
    connection.host.events.publish(
        Event(
            "tool_call",
            connection=connection.agent.connection_id,
            agent=connection.agent.name,
            session=session.id,
            update=params.update,
        )
    )


def cancel(
    connection: AgentConnection, params: CancelNotification
) -> Coroutine[Any, Any, None] | None:
    """`session/cancel`: what the turn has running is killed, and after a while released.

    A terminal whose creation is under way is released when it comes (`terminal_methods.create`).
    What the person has taken over is no longer the turn's.
    """
    session = connection.sessions.get(params.session_id)
    if session is None:
        return None
    session.cancel()
    running = [
        entry
        for entry in session.entries.values()
        if entry.terminal.exit is None and not entry.is_users
    ]
    release_at = boot_time() + RELEASE_AFTER_CANCEL_S
    for entry in running:
        connection.host.registry.kill(entry, EndedBy.AGENT)
        entry.record.release_at = release_at
        entry.mark_changed()
    return release_later(connection, session, running, RELEASE_AFTER_CANCEL_S) if running else None


async def release_later(
    connection: AgentConnection, session: Session, entries: list[TerminalEntry], delay: float
) -> None:
    """Release terminals of a cancelled turn in `delay` seconds, if their agent has not done so."""
    await trio.sleep(delay)
    for entry in entries:
        if entry.id in session.entries and not entry.is_users:
            connection.release(session, entry.id, EndedBy.AGENT)
