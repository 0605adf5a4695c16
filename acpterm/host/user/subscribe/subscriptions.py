"""A front end asks for the sight of a session: which one it means. It is told by `subscriber`."""

from typing import Final

from acpterm.acp import Empty
from acpterm.acp.user_api import SubscribeRequest
from acpterm.host.agent.session import Session
from acpterm.host.user.connection import Person
from acpterm.host.user.subscribe.encoders import MetaForm, V2Form
from acpterm.host.user.subscribe.subscriber import Subscriber
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quoted

# Of sessions that a message names.
_NAMED: Final = 10


async def subscribe(person: Person, params: SubscribeRequest) -> Empty:
    """`_acpterm/session/subscribe`: tell of a session until it is over. Raises `RpcError`."""
    session = find(person, params.session_id, params.connection)
    with person.going(params.token):
        form = MetaForm() if params.form == "meta" else V2Form(session.cwd)
        await Subscriber(person, session, form, params.token).run()
    return Empty()


def find(person: Person, identifier: str, connection: str | None) -> Session:
    """Give a session. Raises `RpcError`: -32002 if there is none, -32602 if there are several."""
    sessions = list(person.sessions())
    found = [
        session
        for session in sessions
        if session.id == identifier and connection in (None, session.agent.connection)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(session.agent.connection for session in found[:_NAMED])
        raise RpcError(
            INVALID_PARAMS,
            f"{len(found)} connections have a session {quoted(identifier)}: "
            f"say which with `connection`, one of {names}",
        )
    where = "" if connection is None else f" of connection {quoted(connection)}"
    names = ", ".join(f"{quoted(s.id)} of {s.agent.connection}" for s in sessions[:_NAMED])
    more = ", …" if len(sessions) > _NAMED else ""
    there = f"there are {names}{more}" if sessions else "there is none yet"
    raise RpcError(RESOURCE_NOT_FOUND, f"there is no session {quoted(identifier)}{where}: {there}")
