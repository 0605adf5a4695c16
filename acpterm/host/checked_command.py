"""The response to `_acpterm/command/check`: the judgement on a command, for agents and the user."""

from msgspec import UNSET

from acpterm.acp.agent_api import CheckedPart, CheckResponse
from acpterm.config.profiles import Profile
from acpterm.policy.verdict import Verdict


def checked(verdict: Verdict, profile: Profile) -> CheckResponse:
    """Return the response that describes `verdict`, the judgement on a command by `profile`."""
    return CheckResponse(
        level=verdict.level.value,
        decision=verdict.decision,
        parts=[
            CheckedPart(list(part.words), part.level.value, part.reason) for part in verdict.parts
        ],
        profile=profile.name,
        reason=verdict.reason or UNSET,
        rule=UNSET if verdict.rule is None else verdict.rule,
    )
