"""What one look has found."""

from typing import Literal, TypeAlias

import msgspec

State: TypeAlias = Literal["ok", "missing", "problem"]


class CheckResult(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    `missing` is what terminals can do without, `problem` what somebody should see to; `advice` says
    how, for both. `fatal`: there can be no terminals.
    """

    state: State
    check: str
    found: str
    advice: str | None = None
    fatal: bool = False


def ok(check: str, found: str) -> CheckResult:
    """Make the finding that something is as it should be."""
    return CheckResult("ok", check, found)


def missing(check: str, found: str, advice: str) -> CheckResult:
    """Make the finding that something is not there, which costs something."""
    return CheckResult("missing", check, found, advice)


def problem(check: str, found: str, advice: str, *, fatal: bool = False) -> CheckResult:
    """Make the finding that something is wrong."""
    return CheckResult("problem", check, found, advice, fatal)
