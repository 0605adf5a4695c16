"""The handler of the agents' `_acpterm/events`: events about the terminals of one session.

The request is pending until it is cancelled, until the session is closed or forgotten, or until the
connection receives another request with the same token: a client that has reconnected repeats the
request, perhaps before the host has noticed the loss of the former transport.

An agent gets no event about a terminal of another session. It gets no event about a terminal that
it has given to the user and whose id it has released. What only concerns the user is left out, as
in `read_methods`.
"""

from collections.abc import Coroutine
from typing import Any, Final

import msgspec
import trio

from acpterm.acp.agent_api import AgentEventsRequest
from acpterm.acp.terminal import Empty
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.read_methods import for_agent
from acpterm.host.agent.session import Session
from acpterm.host.events import Event, event_notification
from acpterm.jsonrpc import INVALID_PARAMS, RpcError

REQUESTS_MAX: Final = 16
"""How many requests for events a connection may have, each with a queue of events."""
_USERS_EVENTS: Final = ("attached", "detached")


def events(connection: AgentConnection, params: AgentEventsRequest) -> Coroutine[Any, Any, Empty]:
    """`_acpterm/events`: send the events about the session's terminals until the request ends.

    The client chooses the request's token, and each notification contains the token. The returned
    coroutine ends when the request is cancelled, when the session is closed, or when a later
    request has the same token. If the client reads too slowly, the oldest events are dropped.
    Raises `RpcError` (-32602) if the connection has `REQUESTS_MAX` such requests already.
    """
    requests = connection.event_requests
    if params.token not in requests and len(requests) >= REQUESTS_MAX:
        raise RpcError(
            INVALID_PARAMS,
            f"{REQUESTS_MAX} requests for events are pending on this connection: cancel one",
        )
    session = connection.session(params.session_id)
    if former := requests.get(params.token):
        former.cancel()
    # Register now: many requests may be received before the first one's task runs.
    scope = requests[params.token] = trio.CancelScope()
    return _events(connection, session, params.token, scope)


async def _events(
    connection: AgentConnection, session: Session, token: str, scope: trio.CancelScope
) -> Empty:
    try:
        with scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_send, connection, session, token)
                await session.closed.wait()
                scope.cancel()
    finally:
        requests = connection.event_requests
        if requests.get(token) is scope:
            del requests[token]
    return Empty()


async def _send(connection: AgentConnection, session: Session, token: str) -> None:
    def is_own(event: Event) -> bool:
        terminal = event.terminal
        return (
            terminal is not None
            and terminal.connection == connection.id
            and terminal.session_id == session.id
            and (terminal.owner == "agent" or terminal.terminal_id in session.entries)
            and event.event not in _USERS_EVENTS
        )

    with connection.host.events.subscribe(is_own) as subscription:
        while True:
            event, dropped = await subscription.next()
            await connection.sender.drain()
            notification = event_notification(token, event, dropped)
            if notification.terminal is not None:
                own = for_agent(notification.terminal)
                notification = msgspec.structs.replace(notification, terminal=own, connection=None)
            connection.sender.notify("_acpterm/event", notification)
