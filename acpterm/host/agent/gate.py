"""Decides whether a command of an agent may start: by the verdict on it, or by asking the user."""

import shlex
from hashlib import sha256

import msgspec

from acpterm.acp.terminal import CreateTerminalRequest
from acpterm.host.agent.approvals import Ask, ask_user
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.session import Session
from acpterm.host.judge import JudgedCommand, Verdict
from acpterm.host.state.records import RequestId
from acpterm.jsonrpc import INVALID_REQUEST, REQUEST_CANCELLED, RpcError
from acpterm.policy.approvals import Answer
from acpterm.runtime.command_line import command_line


async def admit(
    connection: AgentConnection,
    session: Session,
    params: CreateTerminalRequest,
    cwd: str,
    request: RequestId | None,
) -> None:
    """Return if the command may start; ask the user if the verdict says so.

    `cwd` is the directory in which the command starts. Raises `RpcError`: -32600 if the command is
    refused, -32800 if the question was withdrawn.
    """
    judge = connection.host.judge
    if judge is None:
        return
    command = JudgedCommand(params.command, params.args, cwd, connection.agent.name, session.id)
    verdict = judge(command)
    if verdict.decision == "deny":
        raise RpcError(INVALID_REQUEST, f"the command was refused: {verdict.reason}")
    if verdict.decision == "ask":
        ask = Ask(
            command=command_line(params.command, params.args),
            directory=cwd,
            level=verdict.level,
            reason=verdict.reason,
            prefix=verdict.prefix,
            fingerprint=_fingerprint(connection, params, cwd),
            timeout_s=verdict.timeout_s,
            unattended=verdict.unattended,
        )
        answer = await ask_user(connection, session, request, ask)
        if not answer.is_allowed:
            raise refusal(answer, verdict)


def _fingerprint(connection: AgentConnection, params: CreateTerminalRequest, cwd: str) -> bytes:
    """Return a hash of everything that decides what the command does."""
    context = connection.context
    env = sorted(context.env.items())
    rest = repr((cwd, context.cwd, context.umask, tuple(context.rlimits), env))
    return sha256(msgspec.json.encode(params) + rest.encode(errors="surrogatepass")).digest()


def refusal(answer: Answer, verdict: Verdict) -> RpcError:
    """Return the error for a command that the answer to a question has refused.

    The message says who or what has refused it, and how the user can allow it.
    """
    why = f": {answer.reason}" if answer.reason else ""
    about = f"the command is {verdict.level} ({verdict.reason})"
    match answer.by:
        case "cancelled":
            return RpcError(REQUEST_CANCELLED, f"the command was not started{why}")
        case "timeout":
            message = (
                f"the command was refused: {about}, and the user has not answered in time "
                f"({verdict.timeout_s or 0:g} s)"
            )
        case "unattended":
            message = (
                f"the command was refused: {about}, and the user cannot be asked{why}. The user "
                f"can {_how_to_allow(verdict)}keep `acpterm approvals --follow` running to be "
                "asked, or choose another profile"
            )
        case _:
            message = f"the user has refused the command{why} ({about})"
    return RpcError(INVALID_REQUEST, message)


def _how_to_allow(verdict: Verdict) -> str:
    if verdict.prefix is None:
        return ""
    prefix = shlex.join(verdict.prefix)
    return f"allow it with `acpterm policy allow {prefix}`, "
