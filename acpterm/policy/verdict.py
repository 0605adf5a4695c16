"""The types of a judgement: the verdict on a command, its parts, and their levels of danger."""

import enum
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from acpterm.config.profiles import Decision, Kind
from acpterm.policy.losses.loss import Finding, Loss
from acpterm.policy.words import UNKNOWN_TEXT


class Level(enum.StrEnum):
    """How dangerous a command is. The members are in the order of increasing danger."""

    SAFE = "safe"
    UNKNOWN = "unknown"
    DANGEROUS = "dangerous"


class JudgedPart(NamedTuple):
    """One command of the judged line. If `words` is empty, the part stands for the whole line."""

    words: tuple[str, ...]
    """The program and its arguments; `UNKNOWN_TEXT` stands for text that is not known."""
    level: Level
    reason: str
    """Why the command is not safe; empty if it is safe."""


class Verdict(NamedTuple):
    """The judgement on a request to start a program."""

    level: Level
    """The level of the most dangerous part; dangerous if the profile blocks the command."""
    decision: Decision
    """The strictest decision on a part, or deny if a list of the profile blocks the command."""
    rule: str | None
    """The rule or the list's entry that decided; None if the profile decided by the level."""
    reason: str
    """The reason that the rule gives, or else why the level is not safe; may be empty."""
    parts: tuple[JudgedPart, ...]
    prefix: tuple[str, ...] | None
    """The words that "always allow" would store; None if no prefix can stand for the command."""
    is_shell: bool
    """Whether the command was judged as shell text, so that a shell must execute it."""
    kind: Kind | None = None
    """What is lost, if the reason is a loss."""
    pending: tuple[Loss, ...] = ()
    """Losses that may hold: their facts are not known. Judge again with what is found."""
    lost: Mapping[Loss, Finding] | None = None
    """All that what is dangerous, or asked about, may lose; None if that is not known."""

    @property
    def loss(self) -> str | None:
        """What is lost: its kind, and the reason with the names."""
        return f"{self.kind}: {self.reason}" if self.kind else None

    @property
    def is_computed(self) -> bool:
        """Whether `reason` is about a command that has text which only the shell can compute."""
        has_unknown = any(UNKNOWN_TEXT in word for part in self.parts for word in part.words)
        blamed = [part.words for part in self.parts if part.reason == self.reason]
        return has_unknown and any(
            not words or any(UNKNOWN_TEXT in word for word in words) for words in blamed
        )


_LEVELS: Final = {Level.SAFE: 0, Level.UNKNOWN: 1, Level.DANGEROUS: 2}
_DECISIONS: Final[dict[Decision, int]] = {"allow": 0, "ask": 1, "deny": 2}


def worst(levels: Iterable[Level]) -> Level:
    """Return the most dangerous of `levels`; safe if `levels` is empty."""
    return max(levels, key=_LEVELS.__getitem__, default=Level.SAFE)


def strictest(decisions: Iterable[Decision]) -> Decision:
    """Return the strictest of `decisions`; allow if `decisions` is empty."""
    return max(decisions, key=_DECISIONS.__getitem__, default="allow")
