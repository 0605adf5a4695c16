"""The errors for commands of an agent that were refused: why, by what, and how to allow them.

With the setting `short_messages` of a profile, no error contains the verdict's reason and rule. A
refusal by the user has only the user's own words. All other refusals begin with `BLOCKED`.
"""

import shlex
from typing import Final

from acpterm.host.agent.judgement import Judgement
from acpterm.jsonrpc import INVALID_REQUEST, REQUEST_CANCELLED, RpcError
from acpterm.policy.questions import Answer
from acpterm.policy.verdict import Verdict

BLOCKED: Final = "Command blocked for security reasons"
"""The beginning of the message of refusals by a profile with `short_messages`."""


def denial(judgement: Judgement) -> RpcError:
    """Return the error for a command that the profile or a rule denies."""
    if judgement.profile.short_messages:
        return RpcError(INVALID_REQUEST, BLOCKED)
    allow = _how_to_allow(judgement.verdict)
    remedy = f"; the user can {allow}" if allow else ""
    return RpcError(INVALID_REQUEST, f"the command was refused: {_about(judgement)}{remedy}")


def too_long_to_ask(judgement: Judgement, length: int, maximum: int) -> RpcError:
    """Return the error for a command that is too long to ask the user about it.

    `length` is the command's length and `maximum` the maximum, both in characters.
    """
    is_short = judgement.profile.short_messages
    refused = BLOCKED if is_short else f"the command was refused: {_about(judgement)}"
    return RpcError(
        INVALID_REQUEST,
        f"{refused}, and its {length} characters are too many to show them to the user ({maximum} "
        "at most): write it to a file, and run that",
    )


def refusal(judgement: Judgement, answer: Answer, timeout_s: float) -> RpcError:
    """Return the error for a command that `answer` has refused.

    The message says why: the user has refused, has not answered for `timeout_s` seconds, or could
    not be asked. In the last case, the message also says how the user can allow the command. The
    code is -32800 if the question was withdrawn, otherwise -32600.
    """
    why = f": {answer.reason}" if answer.reason else ""
    about = _about(judgement)
    is_short = judgement.profile.short_messages
    match answer.by:
        case "cancelled":
            return RpcError(REQUEST_CANCELLED, f"the command was not started{why}")
        case "timeout" | "unattended" if is_short:
            message = BLOCKED
        case "timeout":
            message = (
                f"the command was refused: {about}, and the user has not answered in time "
                f"({timeout_s:g} s)"
            )
        case "unattended":
            allow = _how_to_allow(judgement.verdict)
            message = (
                f"the command was refused: {about}, and the user cannot be asked{why}. The user "
                f"can {f'{allow}, ' if allow else ''}keep `acpterm approvals --follow` running to "
                "be asked, or choose another profile"
            )
        case _:
            message = f"the user has refused the command{why}"
            message += "" if is_short else f" ({about})"
    return RpcError(INVALID_REQUEST, message)


def _about(judgement: Judgement) -> str:
    """Return the part of an error message that says what decided: a rule, or the level.

    For example: "the rule 'deny git push' applies (the remote is shared), in the profile 'pool'".
    """
    verdict = judgement.verdict
    what = (
        f"it is {verdict.level}" if verdict.rule is None else f"the rule {verdict.rule!r} applies"
    )
    reasons = [verdict.reason] if verdict.reason else []
    if verdict.rule is None and verdict.is_computed:
        reasons.append("instead of $(…), `…` or a variable, write the text itself in single quotes")
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return f"{what}{why}, in the profile {judgement.profile.name!r}"


def _how_to_allow(verdict: Verdict) -> str:
    if verdict.prefix is None:
        return ""
    return f"allow it with `acpterm policy allow -- {shlex.join(verdict.prefix)}`"
