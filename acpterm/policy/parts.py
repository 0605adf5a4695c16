"""`FoundPart`: one command that a judged command line executes. `Lists`: a profile's lists.

`pattern_text` returns a part in the form that is compared with a profile's patterns. `rule_words`
returns it in the form that is compared with a profile's `blocked_commands` and the user's rules.
"""

import itertools
import re
from typing import Final, NamedTuple

from acpterm.config.profiles import COMMAND_LISTS, GIT, Kind, Profile
from acpterm.policy.losses.loss import Loss
from acpterm.policy.verdict import Level
from acpterm.policy.words import Word

_BLANKS: Final = re.compile(r"\s")


class FoundPart(NamedTuple):
    """One command that the judged line executes; without `words`, the line as a whole."""

    words: tuple[Word, ...]
    level: Level
    reason: str
    is_exact: bool
    """Whether the words are known exactly, in a plain line. A rule that allows needs that."""
    is_suspected: bool
    """Whether the words are only suspected to be a command, in a search for danger."""
    is_wrapper: bool
    """Whether the command executes another command or text, which has parts of its own."""
    kinds: tuple[Kind, ...] = ()
    """What it loses; the reason is that of the first."""
    is_listed: bool = True
    """Whether it has its level also without `kinds`."""
    losses: tuple[Loss, ...] = ()
    """What its words suggest that it loses, whether it does or not."""


class Lists:
    """The lists of `profile` (safe, dangerous and blocked commands), prepared for matching."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        listed = [COMMAND_LISTS.get(one, (one,)) for one in profile.safe_commands]
        self._safe = frozenset(itertools.chain.from_iterable(listed))
        self.dangerous = [re.compile(pattern) for pattern in profile.dangerous_patterns]
        self.blocked = frozenset(profile.blocked_commands)
        self.blocked_patterns = [re.compile(pattern) for pattern in profile.blocked_patterns]

    def has_safe(self, text: str) -> bool:
        """Return whether the list of safe commands has the first words of `pattern_text`."""
        if text.startswith("git -"):
            text = re.sub(f"^{GIT}", "git ", text)
        # An entry has at most three words, such as `python -m pytest`.
        words = text.split(" ", 3)
        return words[0] in self._safe or any(
            " ".join(words[:count]) in self._safe for count in (2, 3)
        )


def pattern_text(words: tuple[Word, ...]) -> str:
    """Return a part as words joined by spaces; a blank in a word becomes `_`."""
    return " ".join(_BLANKS.sub("_", text) for text in rule_words(words))


def rule_words(words: tuple[Word, ...]) -> list[str]:
    """Return the texts of a part's words, without the directory in the first word, the program."""
    return [words[0].text.rpartition("/")[2], *[word.text for word in words[1:]]]
