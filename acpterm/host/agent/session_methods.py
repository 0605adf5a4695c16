"""The handlers of the agents' methods about sessions, and of `initialize`.

They are `session/update`, `session/cancel`, `_acpterm/session/set` and `_acpterm/session/open`.
"""

from contextlib import suppress
from typing import Final

import msgspec
import trio
from msgspec import UNSET, Raw, UnsetType

from acpterm import __version__
from acpterm.acp.agent_api import SetSessionRequest
from acpterm.acp.agent_meta import EXTENSIONS, OWN, CancelMeta, InitializeMeta, ResumeMeta, own_meta
from acpterm.acp.initialize import (
    PROTOCOL_VERSION,
    Implementation,
    InitializeAnswer,
    InitializeRequest,
    host_answer,
)
from acpterm.acp.raw_json import members
from acpterm.acp.session import (
    CancelNotification,
    OtherUpdate,
    SessionNotification,
    Terminal,
    read_update,
)
from acpterm.acp.terminal import Empty
from acpterm.acp.terminal_updates import V2_KINDS, from_v2
from acpterm.host.agent.approvals import expire_unclaimed, send_pending
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.entry import TerminalEntry
from acpterm.host.events import new_event
from acpterm.host.launch.environment import requested_context
from acpterm.host.launch.validation import check_absolute, directory_of
from acpterm.host.sessions.session import Session
from acpterm.jsonrpc import INVALID_REQUEST, UNSUPPORTED_VERSION, RpcError
from acpterm.pty.processes import now as boot_time
from acpterm.terminal.status import EndedBy

# Seconds that an agent has after `session/cancel` to release its terminals itself.
RELEASE_AFTER_CANCEL_S: Final = 2.0
# The maximum length of the ids of tool calls and terminals, in characters.
ID_MAX: Final = 4096
# Longer names of agents are cut to this number of characters.
_NAME_MAX: Final = 100


def initialize(connection: AgentConnection, params: InitializeRequest) -> InitializeAnswer:
    """`initialize`: record the agent's name and context; return the capabilities."""
    # An agent that asks for a later version gets ours, and decides whether that will do.
    if (requested := params.protocol_version) < PROTOCOL_VERSION:
        raise RpcError(
            UNSUPPORTED_VERSION,
            f"version {requested} of ACP is not supported: {PROTOCOL_VERSION} is the first",
            {"requested": requested, "supported": [PROTOCOL_VERSION]},
        )
    # With the secret of an earlier connection, the peer continues that connection.
    options = own_meta(params.meta, InitializeMeta)
    # Resuming cannot be undone, so an invalid context or profile must be refused before.
    requested_context(connection.context, params)
    if options and options.profile is not None:
        connection.policy.profiles.check_known(options.profile)
    resumed: bool | UnsetType = UNSET
    if options and options.resume is not None:
        found = connection.resumption.resume(connection, options.resume)
        connection, resumed = found or connection, found is not None
    if options is not None:
        _set_rights(connection, options)
    if resumed is True:
        connection.terminals.start_task(expire_unclaimed, connection)
    if resumed and connection.answerer is not None:
        # In a task, since the client expects the response before everything else.
        connection.terminals.start_task(send_pending, connection)
    connection.context = requested_context(connection.context, params)
    connection.agent.name = agent_name(params.client_info) or connection.agent.name
    connection.mark_changed()
    answer = host_answer(__version__, EXTENSIONS)
    is_approver: bool | UnsetType = UNSET
    if options and options.approver is not None:
        is_approver = connection.approver is not None
    answer.meta = {OWN: ResumeMeta(resume=connection.secret, resumed=resumed, approver=is_approver)}
    return answer


def _set_rights(connection: AgentConnection, options: InitializeMeta) -> None:
    if options.profile is not None:
        connection.request_profile(options.profile)
    if options.relay:
        connection.add_relayed_agent()
    if options.approver is not None:
        holder = connection.holders[0] if connection.holders else None
        approver = connection.guard.approver_tokens.redeem(options.approver, holder)
        if approver is not None:
            connection.add_approver(approver)
    if options.elicits:
        connection.add_elicitor()


def agent_name(info: Raw | UnsetType) -> str | None:
    with suppress(msgspec.DecodeError):
        if not isinstance(info, UnsetType):
            return msgspec.json.decode(info, type=Implementation).name[:_NAME_MAX]
    return None


def update(connection: AgentConnection, params: SessionNotification) -> None:
    """`session/update`: record the update, and publish an event about a tool call."""
    received = read_update(params.update)
    if isinstance(received, OtherUpdate):
        if received.kind in V2_KINDS:
            session = connection.session(params.session_id)
            session.record_terminal_updates(from_v2(received.kind, members(params.update)))
            connection.count_memory(session)
        return
    if len(received.tool_call_id) > ID_MAX:
        # The session would retain the id, and its memory is bounded.
        return
    terminals = None
    if not isinstance(received.content, UnsetType):
        found = [item.terminal_id for item in received.content or () if isinstance(item, Terminal)]
        terminals = [identifier for identifier in found if len(identifier) <= ID_MAX]
    session = connection.session(params.session_id)
    fields = msgspec.json.decode(params.update, type=dict[str, Raw])
    session.record_update(received.tool_call_id, fields, terminals)
    connection.count_memory(session)
    if connection.events.has_subscribers:
        connection.events.publish(
            new_event(
                "tool_call",
                connection=connection.agent.connection_id,
                agent=connection.agent.name,
                session=session.id,
                update=params.update,
            )
        )


def cancel(connection: AgentConnection, params: CancelNotification) -> None:
    """`session/cancel`: kill what runs in the session, and release it after a delay."""
    # Not what the user owns, an earlier cancellation releases, or `_meta.acpterm.terminals` leaves
    # out. A terminal that is being created is released once it exists.
    own = CancelMeta()
    with suppress(RpcError):  # the turn is cancelled even if `_meta` is invalid
        own = own_meta(params.meta, CancelMeta) or own
    session = connection.sessions.get(params.session_id)
    if session is None:
        return
    session.cancel()
    connection.approvals.withdraw(
        connection.agent.connection_id, session.id, reason="the turn was cancelled"
    )
    left = connection.registry.left_by(connection.id, session.id)
    affected = [
        entry
        for entry in (*session.entries.values(), *left)
        if not entry.is_users
        and entry.record.release_at is None
        and (own.terminals is None or entry.id in own.terminals)
    ]
    running = [entry for entry in affected if entry.terminal.exit is None]
    for entry in affected:
        if entry.may_have_background:
            connection.registry.kill(entry, EndedBy.AGENT)
    release_at = boot_time() + RELEASE_AFTER_CANCEL_S
    for entry in running:
        connection.registry.kill(entry, EndedBy.AGENT)
        entry.record.release_at = release_at
        entry.mark_changed()
    if running:
        connection.terminals.start_task(
            release_later, connection, session, running, RELEASE_AFTER_CANCEL_S
        )


async def release_later(
    connection: AgentConnection, session: Session, entries: list[TerminalEntry], delay: float
) -> None:
    """Release the terminals of a cancelled turn that the agent or user has not taken care of."""
    await trio.sleep(delay)
    for entry in entries:
        if entry.id in session.entries and not entry.is_users:
            connection.release(session, entry.id, EndedBy.AGENT)


def set_session(connection: AgentConnection, params: SetSessionRequest) -> Empty:
    """`_acpterm/session/set`: set the directory for create requests without `cwd`."""
    # Whether it exists is checked only when a terminal is created in it.
    cwd = directory_of(params.cwd, params.cwd_bytes) or ""
    check_absolute(cwd)
    session = connection.session(params.session_id)
    session.cwd = cwd
    session.changed()
    connection.count_memory(session)
    return Empty()


def open_session(connection: AgentConnection, params: SetSessionRequest) -> Empty:
    """`_acpterm/session/open`: set the session's directory, in which its programs may write."""
    if connection.approver is None:
        raise RpcError(
            INVALID_REQUEST,
            "an agent cannot choose where its programs may write: use _acpterm/session/set for the "
            "default directory",
        )
    result = set_session(connection, params)
    session = connection.session(params.session_id)
    session.workspace = session.cwd
    session.changed()
    connection.count_memory(session)
    return result
