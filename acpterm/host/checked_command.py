"""The judgement on a command that is only checked, as it is sent to agents and to the user."""

from msgspec import UNSET

from acpterm.acp.agent_api import CheckedPart, CheckResponse
from acpterm.config.profiles import Profile
from acpterm.policy.verdict import Verdict


def checked(verdict: Verdict, profile: Profile) -> CheckResponse:
    """Return the response that describes the verdict of `profile` on a command."""
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
