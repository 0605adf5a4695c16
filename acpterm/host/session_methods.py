"""What an agent says of itself and its sessions: `initialize`, `session/update` and `cancel`."""

from collections.abc import Coroutine
from typing import Any, Final

import trio
from msgspec import UnsetType

from acpterm import __version__
from acpterm.acp import (
    CancelNotification,
    InitializeAnswer,
    InitializeMeta,
    InitializeRequest,
    OtherUpdate,
    SessionNotification,
    Terminal,
    host_answer,
    own_meta,
    read_update,
)
from acpterm.host.asker import limits_by_name
from acpterm.host.caller import Caller
from acpterm.host.checks import check_absolute, check_environment
from acpterm.host.session import Session
from acpterm.terminal import EndedBy
from acpterm.terminal import Terminal as Running

# Seconds that an agent has after a cancel to release its terminals itself.
AFTER_CANCEL: Final = 2.0

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
    "exitStatusMeta": ["endedBy", "wallMs", "cpuMs", "maxRssBytes"],
}


def initialize(caller: Caller, params: InitializeRequest) -> InitializeAnswer:
    """`initialize`: here the agent asks, since it is the one that connects."""
    wishes = own_meta(params.meta, InitializeMeta)
    sent = wishes and wishes.asker
    if sent:
        if sent.cwd is not None:
            check_absolute(sent.cwd)
        if sent.env is not None:
            check_environment(sent.env.items())
        asker = caller.asker
        caller.asker = asker._replace(
            env=asker.env if sent.env is None else sent.env,
            cwd=asker.cwd if sent.cwd is None else sent.cwd,
            umask=asker.umask if sent.umask is None else sent.umask,
            rlimits=asker.rlimits if sent.rlimits is None else limits_by_name(sent.rlimits),
        )
    return host_answer(__version__, EXTENSIONS)


def update(caller: Caller, params: SessionNotification) -> None:
    """`session/update`: remember which terminals a tool call shows, past their release."""
    said = read_update(params.update)
    if isinstance(said, OtherUpdate) or isinstance(said.content, UnsetType):
        return
    shown = [item.terminal_id for item in said.content or () if isinstance(item, Terminal)]
    session = caller.session(params.session_id)
    session.show(said.tool_call_id, shown)
    if session.tool_calls:
        caller.own(session)


def cancel(caller: Caller, params: CancelNotification) -> Coroutine[Any, Any, None] | None:
    """`session/cancel`: what the turn has running is killed, and after a while released.

    A terminal whose creation is under way is released when it comes (`terminal_methods.create`).
    """
    session = caller.sessions.get(params.session_id)
    if session is None:
        return None
    session.cancelled += 1
    running = [terminal for terminal in session.terminals.values() if terminal.exit is None]
    for terminal in running:
        terminal.kill(EndedBy.AGENT)
    return _release_later(caller, session, running) if running else None


async def _release_later(caller: Caller, session: Session, running: list[Running]) -> None:
    await trio.sleep(AFTER_CANCEL)
    for terminal in running:
        if terminal.id in session.terminals:
            caller.release(session, terminal.id, EndedBy.AGENT)
