"""Finds texts that may be commands in a line that cannot be parsed; for finding danger only."""

import itertools
import re
from collections.abc import Iterator
from typing import Final

from acpterm.policy.syntax.command import NO_CONSTANTS, Command
from acpterm.policy.syntax.plain import KEYWORDS
from acpterm.policy.words import Raw, Word, words_of

SUSPECTED_MAX: Final = 64
"""Maximum pieces of a line, and maximum words of each piece, that are examined."""

_SEPARATORS: Final = re.compile("[;&|\n()`\r\x0b\x0c\x85\u2028\u2029]+")
_PUNCTUATION: Final = re.compile(r"[\s{},'\"$]+")


def suspected(line: str) -> Iterator[Command]:
    """Yield possible commands of a line that cannot be parsed."""
    # Each piece is read twice: without its quotes and backslashes, and as words of a shell.
    for text in itertools.islice(filter(str.strip, _SEPARATORS.split(line)), SUSPECTED_MAX):
        expanded = itertools.chain.from_iterable(
            words_of(Raw(word, ()), NO_CONSTANTS) for word in text.split()[:SUSPECTED_MAX]
        )
        simple = _PUNCTUATION.sub(" ", text.replace("\\", "")).split()[:SUSPECTED_MAX]
        for words in (simple, [word.text for word in expanded]):
            while words and words[0] in KEYWORDS:
                del words[0]
            if words:
                yield Command(tuple(Word(word, is_literal=False) for word in words))
