"""Levels of danger, and what a judgement consists of."""

import enum
from collections.abc import Iterable
from typing import Final, NamedTuple

from acpterm.config.profiles import Decision


class Level(enum.StrEnum):
    """How dangerous a command is; `worst` compares levels."""

    SAFE = "safe"
    UNKNOWN = "unknown"
    DANGEROUS = "dangerous"


class Part(NamedTuple):
    """One command of a line; without words, the line itself."""

    words: tuple[str, ...]
    """The program and its arguments, as far as they are known; `UNKNOWN_TEXT` marks the rest."""
    level: Level
    reason: str
    """Why the command is not safe; empty if it is safe."""


class Verdict(NamedTuple):
    """The judgement on a request to start a program."""

    level: Level
    decision: Decision
    rule: str | None
    """The rule or list that decided; None if the profile's decision on the level did."""
    reason: str
    """Why the decision is not allow; for a level that is not safe, why it is not."""
    parts: tuple[Part, ...]
    prefix: tuple[str, ...] | None
    """What "always allow" would store; None if no prefix can stand for the command."""
    is_shell: bool
    """Whether the command was judged as shell text, and so must be executed by a shell."""


_LEVELS: Final = {Level.SAFE: 0, Level.UNKNOWN: 1, Level.DANGEROUS: 2}
_DECISIONS: Final[dict[Decision, int]] = {"allow": 0, "ask": 1, "deny": 2}


def worst(levels: Iterable[Level]) -> Level:
    """Return the most dangerous of `levels`, or safe if there are none."""
    return max(levels, key=_LEVELS.__getitem__, default=Level.SAFE)


def strictest(decisions: Iterable[Decision]) -> Decision:
    """Return the strictest of `decisions`, or allow if there are none."""
    return max(decisions, key=_DECISIONS.__getitem__, default="allow")
