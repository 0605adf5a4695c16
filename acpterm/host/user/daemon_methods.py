"""What a front end of the person's asks of the host as a whole: how it is, event happens."""

import os

from acpterm import __version__
from acpterm.acp import Empty, InitializeAnswer, InitializeRequest, host_answer
from acpterm.acp.user_api import (
    EventNotification,
    EventsRequest,
    NoParams,
    SessionInfo,
    SessionsResponse,
    StatusResponse,
)
from acpterm.host.events import Event, Subscription
from acpterm.host.launch.exec_context import requested_context
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError
from acpterm.keeper.client import KeeperLostError, RestartError
from acpterm.pty import linux


def initialize(user: UserConnection, params: InitializeRequest) -> InitializeAnswer:
    """`initialize`: as an agent's; event is answered has the person's methods in it."""
    user.context = requested_context(user.context, params)
    return host_answer(__version__, {"person": True})


def status(user: UserConnection, params: NoParams) -> StatusResponse:
    """`_acpterm/status`: the daemon."""
    del params
    host = user.host
    host.registry.expire()
    entries = list(host.registry)
    place = host.daemon_info
    return StatusResponse(
        version=__version__,
        # The daemon's main process.
        pid=os.getpid() if host.keeper.embedded else host.keeper.pid,
        keeper_pid=host.keeper.pid,
        worker_pid=os.getpid(),
        takeovers=host.keeper.takeovers,
        agent_socket=place.agent_socket,
        user_socket=place.user_socket,
        uptime_ms=round(1000 * host.uptime),
        idle_exit_ms=None if place.idle_exit_s is None else round(1000 * place.idle_exit_s),
        tracking=place.tracking,
        running=sum(entry.terminal.exit is None for entry in entries),
        exited=sum(entry.terminal.exit is not None and not entry.released_at for entry in entries),
        retained=sum(entry.released_at is not None for entry in entries),
        agents=host.agents,
        users=host.users,
        rss_bytes=linux.resident_memory(),
        output_bytes=sum(entry.terminal.retained_bytes for entry in entries),
    )


def shutdown(user: UserConnection, params: NoParams) -> Empty:
    """`_acpterm/shutdown`: end the daemon and its terminals, in order."""
    del params
    user.host.daemon_info.end()
    return Empty()


async def restart(user: UserConnection, params: NoParams) -> Empty:
    """`_acpterm/restart`: have the installed version take over from this worker.

    Answered with an error when that fails, and this one goes on. When it succeeds this process, and
    with it the connection, ends: the client finds out by connecting again.
    """
    del params
    user.host.state.flush()
    try:
        with user.cancel_on_close():
            await user.host.keeper.restart()
    except RestartError as error:
        raise RpcError(INTERNAL_ERROR, f"not restarted: {error}") from error
    except KeeperLostError as error:
        raise RpcError(INTERNAL_ERROR, f"not restarted, the keeper is lost: {error}") from error
    return Empty()


async def events(user: UserConnection, params: EventsRequest) -> Empty:
    """`_acpterm/events`: tell everything that happens from now on, until it is cancelled."""
    with user.ongoing_request(params.token):
        subscription = Subscription()
        user.host.events.subscriptions.add(subscription)
        try:
            while True:
                event, dropped = await subscription.next()
                await user.sender.drain()
                user.sender.notify("_acpterm/event", _notification(params.token, event, dropped))
        finally:
            user.host.events.subscriptions.discard(subscription)


def _notification(token: str, event: Event, dropped: int) -> EventNotification:
    terminal = event.terminal
    notification = EventNotification(
        token=token,
        event=event.event,
        at=round(1000 * event.at),
        terminal=terminal,
        connection=terminal.connection if terminal else event.connection,
        agent=terminal.agent if terminal else event.agent,
        session_id=terminal.session_id if terminal else event.session,
        by=event.by,
        lost=dropped,
    )
    if event.update is not None:
        notification.update = event.update
    return notification


def sessions(user: UserConnection, params: NoParams) -> SessionsResponse:
    """`_acpterm/session/list`: the sessions that have terminals or tool calls."""
    del params
    return SessionsResponse(
        [
            SessionInfo(
                session_id=session.id,
                connection=session.agent.connection_id,
                agent=session.agent.name,
                cwd=session.cwd,
                terminals=list(session.entries),
                tool_calls=[call for call, _ in session.tool_calls],
            )
            for session in user.sessions()
            if session.entries or len(session.tool_calls)
        ]
    )
