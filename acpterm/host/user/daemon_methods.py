"""The handlers of the user's methods about the host as a whole, not about one terminal.

They report status, events and agents' sessions, and restart or shut down the daemon.
"""

import os
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, Final

import msgspec

from acpterm import __version__
from acpterm.acp.initialize import InitializeAnswer, InitializeRequest, host_answer
from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import NoParams, SessionInfo, SessionsResponse, StatusResponse
from acpterm.acp.user_streams import EventsRequest, SubscribeRequest
from acpterm.config import audit_dir, undo_dir
from acpterm.host.events import Subscription
from acpterm.host.launch.environment import requested_context
from acpterm.host.sessions.session import Session
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.subscribe.encoders import V1MetaEncoder, V2Encoder
from acpterm.host.user.subscribe.subscriber import Subscriber
from acpterm.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    RpcError,
    quote,
    readable,
)
from acpterm.keeper.reports import KeeperLostError, RestartError
from acpterm.pty import linux

# How many sessions an error message names.
_NAMED_MAX: Final = 10


def initialize(user: UserConnection, params: InitializeRequest) -> InitializeAnswer:
    """`initialize`: set the execution context of the client; return the host's capabilities.

    The capabilities say that the user's methods are available on this socket, and how many
    questions wait for an answer.
    """
    user.context = requested_context(user.context, params)
    return host_answer(__version__, {"user": True, "questions": len(user.approvals.pending)})


def status(user: UserConnection, params: NoParams) -> StatusResponse:
    """`_acpterm/status`: return the state of the daemon."""
    del params
    user.registry.expire()
    entries = list(user.registry)
    daemon, keeper = user.daemon, user.daemon.keeper
    info = daemon.info
    return StatusResponse(
        version=__version__,
        # The daemon's main process.
        pid=os.getpid() if keeper.embedded else keeper.pid,
        keeper_pid=keeper.pid,
        worker_pid=os.getpid(),
        takeovers=keeper.takeovers,
        agent_socket=info.agent_socket,
        user_socket=info.user_socket,
        uptime_ms=round(1000 * daemon.uptime),
        idle_exit_ms=None if info.idle_exit_s is None else round(1000 * info.idle_exit_s),
        tracking=daemon.tracking,
        running=sum(entry.terminal.exit is None for entry in entries),
        exited=sum(entry.terminal.exit is not None and not entry.released_at for entry in entries),
        retained=sum(entry.released_at is not None for entry in entries),
        agents=daemon.agents,
        users=daemon.users,
        questions=len(user.approvals.pending),
        rss_bytes=linux.resident_memory(),
        output_bytes=sum(entry.terminal.retained_bytes for entry in entries),
        http=None if info.web is None else info.web.status(),
        provider=user.settings.provider,
        profile=user.settings.profile,
        sources=dict(info.sources),
        audit_dir=audit_dir(user.settings) if user.settings.audit else None,
        undo_dir=undo_dir(),
    )


def shutdown(user: UserConnection, params: NoParams) -> Empty:
    """`_acpterm/shutdown`: begin to end all terminals and the daemon, and respond at once."""
    del params
    user.daemon.info.end()
    return Empty()


async def restart(user: UserConnection, params: NoParams) -> Empty:
    """`_acpterm/restart`: replace this worker by the installed version.

    On success the connection ends without a response, since this worker ends; the client reconnects
    to the new worker.
    """
    del params
    user.flush_state()
    try:
        with user.cancel_on_close():
            await user.daemon.keeper.restart()
    except RestartError as error:
        raise RpcError(INTERNAL_ERROR, f"not restarted: {error}") from error
    except KeeperLostError as error:
        raise RpcError(INTERNAL_ERROR, f"not restarted, the keeper is lost: {error}") from error
    return Empty()


def events(user: UserConnection, params: EventsRequest) -> Coroutine[Any, Any, Empty]:
    """`_acpterm/events`: send all new events until the request is cancelled.

    If the client reads too slowly, the oldest events are dropped; the next notification has their
    number (`lost`).
    """
    # Subscribe now, not when the request's task runs: a list of terminals that the client requests
    # next must not be older than the first event.
    subscribed = ExitStack()
    subscription = subscribed.enter_context(user.events.subscribe())
    return _events(user, params.token, subscription, subscribed)


async def _events(
    user: UserConnection, token: str, subscription: Subscription, subscribed: ExitStack
) -> Empty:
    with subscribed, user.ongoing_request(token):
        while True:
            event = await subscription.next()
            await user.sender.drain()
            user.sender.notify("_acpterm/event", msgspec.structs.replace(event, token=token))


def sessions(user: UserConnection, params: NoParams) -> SessionsResponse:
    """`_acpterm/session/list`: return the agents' sessions that have terminals or tool calls."""
    del params
    return SessionsResponse(
        [
            SessionInfo(
                session_id=session.id,
                connection=session.agent.connection_id,
                agent=session.agent.name,
                cwd=None if session.cwd is None else readable(session.cwd),
                terminals=list(session.entries),
                tool_calls=[call for call, _ in session.tool_calls],
            )
            for session in user.sessions()
            if session.entries or len(session.tool_calls)
        ]
    )


async def subscribe(user: UserConnection, params: SubscribeRequest) -> Empty:
    """`_acpterm/session/subscribe`: send a session's updates until the session is closed."""
    session = _find_session(user, params.session_id, params.connection)
    with user.ongoing_request(params.token):
        encoder = V1MetaEncoder() if params.format == "meta" else V2Encoder(session.cwd)
        await Subscriber(user, session, encoder, params.token).run()
    return Empty()


def _find_session(user: UserConnection, identifier: str, connection: str | None) -> Session:
    sessions = list(user.sessions())
    found = [
        session
        for session in sessions
        if session.id == identifier and connection in (None, session.agent.connection_id)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(session.agent.connection_id for session in found[:_NAMED_MAX])
        raise RpcError(
            INVALID_PARAMS,
            f"{len(found)} connections have a session {quote(identifier)}: "
            f"say which with `connection`, one of {names}",
        )
    where = "" if connection is None else f" of connection {quote(connection)}"
    names = ", ".join(f"{quote(s.id)} of {s.agent.connection_id}" for s in sessions[:_NAMED_MAX])
    more = ", …" if len(sessions) > _NAMED_MAX else ""
    there = f"there are {names}{more}" if sessions else "there is none yet"
    raise RpcError(RESOURCE_NOT_FOUND, f"there is no session {quote(identifier)}{where}: {there}")
