"""The verdict on an agent's command, as the host gets it from the policy: its types."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from acpterm.config.profiles import Decision
from acpterm.policy.approvals import Prefix, Unattended


class JudgedCommand(NamedTuple):
    """A command that an agent wants to run."""

    command: str
    args: Sequence[str] | None
    cwd: str
    agent: str | None
    session: str


class Verdict(NamedTuple):
    """What is done with a command, and why."""

    decision: Decision
    level: str
    reason: str
    prefix: Prefix | None = None
    """The words that stand for the whole command; None if the user can only decide once."""
    timeout_s: float | None = None
    """After how many seconds a question without an answer is refused; None for never."""
    unattended: Unattended = "refuse"


Judge: TypeAlias = Callable[[JudgedCommand], Verdict]
