"""What a front end of the person's asks of the host as a whole: how it is, what happens."""

import os

from acpterm import __version__
from acpterm.acp import Empty, InitializeAnswer, InitializeRequest, host_answer
from acpterm.acp.user_api import (
    EventNotification,
    EventsRequest,
    Nothing,
    SessionInfo,
    SessionsResponse,
    StatusResponse,
)
from acpterm.host.agent.session_methods import take_asker
from acpterm.host.events import Happening, Listener
from acpterm.host.user.connection import Person
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError
from acpterm.keeper.client import KeeperLostError, RestartError
from acpterm.pty import linux


def initialize(person: Person, params: InitializeRequest) -> InitializeAnswer:
    """`initialize`: as an agent's; what is answered has the person's methods in it."""
    person.asker = take_asker(person.asker, params)
    return host_answer(__version__, {"person": True})


def status(person: Person, params: Nothing) -> StatusResponse:
    """`_acpterm/status`: the daemon."""
    del params
    shared = person.shared
    shared.roster.expire()
    entries = list(shared.roster)
    place = shared.place
    return StatusResponse(
        version=__version__,
        # The daemon's main process.
        pid=os.getpid() if shared.keeper.embedded else shared.keeper.pid,
        keeper_pid=shared.keeper.pid,
        worker_pid=os.getpid(),
        takeovers=shared.keeper.takeovers,
        agent_socket=place.agent_socket,
        user_socket=place.user_socket,
        uptime_ms=round(1000 * shared.uptime),
        idle_exit_ms=None if place.patience is None else round(1000 * place.patience),
        tracking=place.tracking,
        running=sum(entry.terminal.exit is None for entry in entries),
        exited=sum(entry.terminal.exit is not None and not entry.released for entry in entries),
        kept=sum(entry.released is not None for entry in entries),
        agents=shared.agents,
        people=shared.people,
        rss_bytes=linux.resident_memory(),
        output_bytes=sum(entry.terminal.held for entry in entries),
    )


def shutdown(person: Person, params: Nothing) -> Empty:
    """`_acpterm/shutdown`: end the daemon and its terminals, in order."""
    del params
    person.shared.place.end()
    return Empty()


async def restart(person: Person, params: Nothing) -> Empty:
    """`_acpterm/restart`: have the installed version take over from this worker.

    Answered with an error when that fails, and this one goes on. When it succeeds this process, and
    with it the connection, ends: the client finds out by connecting again.
    """
    del params
    person.shared.state.flush()
    try:
        with person.present():
            await person.shared.keeper.restart()
    except RestartError as error:
        raise RpcError(INTERNAL_ERROR, f"not restarted: {error}") from error
    except KeeperLostError as error:
        raise RpcError(INTERNAL_ERROR, f"not restarted, the keeper is lost: {error}") from error
    return Empty()


async def events(person: Person, params: EventsRequest) -> Empty:
    """`_acpterm/events`: tell everything that happens from now on, until it is cancelled."""
    with person.going(params.token):
        listener = Listener()
        person.shared.bus.listeners.add(listener)
        try:
            while True:
                happening, lost = await listener.next()
                await person.sender.room()
                person.sender.notify("_acpterm/event", _event(params.token, happening, lost))
        finally:
            person.shared.bus.listeners.discard(listener)


def _event(token: str, what: Happening, lost: int) -> EventNotification:
    terminal = what.terminal
    event = EventNotification(
        token=token,
        event=what.event,
        at=round(1000 * what.at),
        terminal=terminal,
        connection=terminal.connection if terminal else what.connection,
        agent=terminal.agent if terminal else what.agent,
        session_id=terminal.session_id if terminal else what.session,
        by=what.by,
        lost=lost,
    )
    if what.update is not None:
        event.update = what.update
    return event


def sessions(person: Person, params: Nothing) -> SessionsResponse:
    """`_acpterm/session/list`: the sessions that have terminals or tool calls."""
    del params
    return SessionsResponse(
        [
            SessionInfo(
                session_id=session.id,
                connection=session.agent.connection,
                agent=session.agent.name,
                cwd=session.cwd,
                terminals=list(session.entries),
                tool_calls=[call for call, _ in session.tool_calls],
            )
            for session in person.sessions()
            if session.entries or len(session.tool_calls)
        ]
    )
