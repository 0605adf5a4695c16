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
from acpterm.acp.terminal_updates import V2_KINDS, in_v2
from acpterm.host.agent.connection import Caller
from acpterm.host.agent.session import Session
from acpterm.host.events import Happening
from acpterm.host.launch.exec_context import Asker, limits_by_name
from acpterm.host.launch.validation import check_absolute, check_environment, check_size
from acpterm.host.registry import Entry
from acpterm.pty.processes import now as boot_time
from acpterm.terminal.status import EndedBy

# Seconds that an agent has after a cancel to release its terminals itself.
AFTER_CANCEL: Final = 2.0
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


def initialize(caller: Caller, params: InitializeRequest) -> InitializeAnswer:
    """`initialize`: here the agent asks, since it is the one that connects.

    With the secret of a connection that was lost it takes that one's place.
    """
    wishes = own_meta(params.meta, InitializeMeta)
    resumed: bool | UnsetType = UNSET
    if wishes and wishes.resume is not None:
        found = caller.resumption.resume(caller, wishes.resume)
        caller, resumed = found or caller, found is not None
    if wishes and wishes.relay:
        caller.add_relayed_agent()
    caller.asker = take_asker(caller.asker, params)
    caller.agent.name = name_in(params.client_info) or caller.agent.name
    caller.changed()
    answer = host_answer(__version__, EXTENSIONS)
    answer.meta = {OWN: ResumeMeta(resume=caller.secret, resumed=resumed)}
    return answer


def take_asker(asker: Asker, params: InitializeRequest) -> Asker:
    """Give the asker that `initialize` says; what it does not say is as before."""
    wishes = own_meta(params.meta, InitializeMeta)
    sent = wishes and wishes.asker
    if not sent:
        return asker
    if sent.cwd is not None:
        check_absolute(sent.cwd)
    if sent.env is not None:
        check_environment(sent.env.items())
        check_size(("/bin/sh",), sent.env, asker.rlimits)
    return asker._replace(
        env=asker.env if sent.env is None else sent.env,
        cwd=asker.cwd if sent.cwd is None else sent.cwd,
        umask=asker.umask if sent.umask is None else sent.umask,
        rlimits=asker.rlimits if sent.rlimits is None else limits_by_name(sent.rlimits),
    )


def name_in(info: Raw | UnsetType) -> str | None:
    """Give the name of whoever asks, in its `clientInfo`, if it has said it."""
    with suppress(msgspec.DecodeError):
        if not isinstance(info, UnsetType):
            return msgspec.json.decode(info, type=Implementation).name[:_NAME]
    return None


def update(caller: Caller, params: SessionNotification) -> None:
    """`session/update`: remember its tool calls, which terminals they show, and the agent's own."""
    said = read_update(params.update)
    if isinstance(said, OtherUpdate):
        if said.kind in V2_KINDS:
            session = caller.session(params.session_id)
            caller.own(session)
            session.show(in_v2(said.kind, members(params.update)))
            caller.remember(session)
        return
    if len(said.tool_call_id) > ID_MAX:
        # Such an id would be remembered: what the session holds is bounded.
        return
    shown = None
    if not isinstance(said.content, UnsetType):
        found = [item.terminal_id for item in said.content or () if isinstance(item, Terminal)]
        shown = [identifier for identifier in found if len(identifier) <= ID_MAX]
    session = caller.session(params.session_id)
    caller.own(session)
    fields = msgspec.json.decode(params.update, type=dict[str, Raw])
    session.tell(said.tool_call_id, fields, shown)
    caller.remember(session)
    caller.shared.bus.publish(
        Happening(
            "tool_call",
            connection=caller.agent.connection,
            agent=caller.agent.name,
            session=session.id,
            update=params.update,
        )
    )


def cancel(caller: Caller, params: CancelNotification) -> Coroutine[Any, Any, None] | None:
    """`session/cancel`: what the turn has running is killed, and after a while released.

    A terminal whose creation is under way is released when it comes (`terminal_methods.create`).
    What the person has taken over is no longer the turn's.
    """
    session = caller.sessions.get(params.session_id)
    if session is None:
        return None
    session.cancel()
    running = [
        entry
        for entry in session.entries.values()
        if entry.terminal.exit is None and not entry.is_users
    ]
    release_at = boot_time() + AFTER_CANCEL
    for entry in running:
        caller.shared.roster.kill(entry, EndedBy.AGENT)
        entry.record.release_at = release_at
        entry.changed()
    return release_later(caller, session, running, AFTER_CANCEL) if running else None


async def release_later(
    caller: Caller, session: Session, entries: list[Entry], delay: float
) -> None:
    """Release terminals of a cancelled turn in `delay` seconds, if their agent has not done so."""
    await trio.sleep(delay)
    for entry in entries:
        if entry.id in session.entries and not entry.is_users:
            caller.release(session, entry.id, EndedBy.AGENT)
