"""The result of one check of `acpterm doctor`."""

from typing import Literal, TypeAlias

import msgspec

State: TypeAlias = Literal["ok", "missing", "problem"]


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check.

    `check` names what was checked, and `found` describes what was found. The state `missing` means
    that an optional feature is absent, and the state `problem` that the user should fix something;
    `advice` says what to do in both cases. The field `fatal` is true if no terminal can be created.
    """

    state: State
    check: str
    found: str
    advice: str | None = None
    fatal: bool = False


def ok(check: str, found: str) -> CheckResult:
    """Return the result of a check that passed; `found` describes what was found."""
    return CheckResult("ok", check, found)


def missing(check: str, found: str, advice: str) -> CheckResult:
    """Return the result of a check that found an optional feature absent."""
    return CheckResult("missing", check, found, advice)


def problem(check: str, found: str, advice: str, *, fatal: bool = False) -> CheckResult:
    """Return the result of a check that failed."""
    return CheckResult("problem", check, found, advice, fatal)
