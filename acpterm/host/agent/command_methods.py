"""The handler of `_acpterm/command/check`, which judges a command without running it.

If the params have `ask`, the user is asked in the same way as for `terminal/create`: the question
is withdrawn when the request or the turn is cancelled, and continued when the request is repeated
after a reconnect.
"""

from collections.abc import Coroutine
from typing import Any

from msgspec import UNSET

from acpterm.acp.agent_api import CheckRequest, CheckResponse
from acpterm.host.agent import gate
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.creates import recognisable_id
from acpterm.host.agent.judgement import Judgement
from acpterm.host.agent.refusals import BLOCKED
from acpterm.host.checked_command import checked
from acpterm.host.launch.validation import check_absolute, directory_of
from acpterm.jsonrpc import REQUEST_CANCELLED, Id, RpcError
from acpterm.providers.provider import is_place


def check(
    connection: AgentConnection, params: CheckRequest, request_id: Id
) -> Coroutine[Any, Any, CheckResponse]:
    """`_acpterm/command/check`: judge a command as `terminal/create` would, without running it."""
    with gate.recording_refusal(connection, params):
        if (asked := directory_of(params.cwd, params.cwd_bytes)) is not None:
            check_absolute(asked)
        session = connection.session(params.session_id)
        cwd = asked or connection.default_directory(session)
        judgement = gate.judge_check(connection, session, params, cwd)
    turn, request = session.cancelled, recognisable_id(request_id)

    async def decide() -> CheckResponse:
        nonlocal judgement
        with gate.recording_refusal(connection, params):
            if asked is None and not is_place(judgement.provider):
                found = await connection.directories.nearest(cwd)
                if found != cwd:
                    judgement = gate.judge_check(connection, session, params, found)
            if not params.ask or judgement.verdict.decision == "allow":
                return _response(judgement)
            await connection.creates.wait_in_flight(request)
            with connection.creates.in_flight(request):
                if session.cancelled == turn:
                    await gate.admit(connection, session, params, judgement, request)
            # The turn may have been cancelled since the user answered.
            if session.cancelled != turn:
                raise RpcError(REQUEST_CANCELLED, "cancelled with the turn")
        response = _response(judgement)
        response.decision = "allow"
        return response

    return decide()


def _response(judgement: Judgement) -> CheckResponse:
    response = checked(judgement.verdict, judgement.profile)
    response.level = judgement.level.value
    if judgement.profile.short_messages and response.decision == "deny":
        # A profile with `short_messages` does not reveal the reason and the rule of a refusal.
        response.reason, response.rule = BLOCKED, UNSET
        for part in response.parts:
            part.reason = ""
    return response
