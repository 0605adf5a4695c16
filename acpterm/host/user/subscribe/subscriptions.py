"""A front end asks for the sight of a session: which one it means. It is told by `subscriber`."""

from typing import Final

from acpterm.acp import Empty
from acpterm.acp.user_api import SubscribeRequest
from acpterm.host.sessions.observed import ObservedSession
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.subscribe.encoders import V1MetaEncoder, V2Encoder
from acpterm.host.user.subscribe.subscriber import Subscriber
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quote

# Of sessions that a message names.
_NAMED: Final = 10


async def subscribe(user: UserConnection, params: SubscribeRequest) -> Empty:
    """`_acpterm/session/subscribe`: tell of a session until it is over. Raises `RpcError`."""
    session = find(user, params.session_id, params.connection)
    with user.ongoing_request(params.token):
        form = V1MetaEncoder() if params.format == "meta" else V2Encoder(session.cwd)
        await Subscriber(user, session, form, params.token).run()
    return Empty()


def find(user: UserConnection, identifier: str, connection: str | None) -> ObservedSession:
    """Give a session. Raises `RpcError`: -32002 if there is none, -32602 if there are several."""
    sessions = list(user.sessions())
    found = [
        session
        for session in sessions
        if session.id == identifier and connection in (None, session.agent.connection_id)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(session.agent.connection_id for session in found[:_NAMED])
        raise RpcError(
            INVALID_PARAMS,
            f"{len(found)} connections have a session {quote(identifier)}: "
            f"say which with `connection`, one of {names}",
        )
    where = "" if connection is None else f" of connection {quote(connection)}"
    names = ", ".join(f"{quote(s.id)} of {s.agent.connection_id}" for s in sessions[:_NAMED])
    more = ", …" if len(sessions) > _NAMED else ""
    there = f"there are {names}{more}" if sessions else "there is none yet"
    raise RpcError(RESOURCE_NOT_FOUND, f"there is no session {quote(identifier)}{where}: {there}")
