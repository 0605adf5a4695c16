"""Parts of a command as they are found, and what matches them: lists of a profile, and rules."""

import re
from typing import Final, NamedTuple

from acpterm.config.profiles import Profile
from acpterm.policy.levels import Level
from acpterm.policy.words import Word

_BLANKS: Final = re.compile(r"\s")


class FoundPart(NamedTuple):
    """A part, with what decides whether a rule that allows it counts."""

    words: tuple[Word, ...]
    level: Level
    reason: str
    is_exact: bool
    """Whether the words are known exactly, in a plain line."""
    is_suspected: bool
    is_wrapper: bool


class Lists:
    """The lists of a profile, prepared for matching."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.safe = frozenset(profile.safe_commands)
        self.dangerous = [re.compile(pattern) for pattern in profile.dangerous_patterns]
        self.blocked = frozenset(profile.blocked_commands)
        self.blocked_patterns = [re.compile(pattern) for pattern in profile.blocked_patterns]


def pattern_text(words: tuple[Word, ...]) -> str:
    """Return the text of a part that patterns match: no word has a blank in it."""
    return " ".join(_BLANKS.sub("_", text) for text in rule_words(words))


def rule_words(words: tuple[Word, ...]) -> list[str]:
    """Return the words of a part, with the program's name instead of its path."""
    return [words[0].text.rpartition("/")[2], *[word.text for word in words[1:]]]
