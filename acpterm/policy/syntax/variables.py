"""The values of variables in a line.

A shell assigns variables while it runs a line, which a parser does not. To find `X=rm; $X -r .`,
the constants that the line assigns are collected first, and used in all of its words. If a variable
gets several values, other tables of constants have the others.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from acpterm.policy.words import UNKNOWN_TEXT, Raw, words_of

VALUE_MAX: Final = 256
"""Maximum characters of the value of a variable that is known."""
ASSIGNMENTS_MAX: Final = 256
"""Maximum assignments of which the values are tried."""
REPEATED_MAX: Final = 8
"""Maximum values that are tried of variables with one value after another."""
POSITIONAL_MAX: Final = 8
"""Maximum positional parameters that are known."""


class Table(NamedTuple):
    """Values of variables, to be tried in the words of a line."""

    constants: Mapping[str, str]
    unknown: str
    """What stands for text that is not known."""


class Variables:
    """The variables that a line assigns, and their values in the order of the line."""

    def __init__(self, constants: Mapping[str, str]) -> None:
        self.constants: Final = {"IFS": " ", **constants}
        """The last value of each variable."""
        self._values: Final[list[tuple[str, str]]] = []

    def declare(self, name: str) -> None:
        """Assign nothing to a variable, unless it has a value."""
        self.constants.setdefault(name, "")

    def assign(self, name: str, value: str) -> None:
        """Assign a value to a variable."""
        if len(value) > VALUE_MAX:  # `X=$X$X` doubles the value
            value = UNKNOWN_TEXT
        self.constants[name] = value
        if len(self._values) < ASSIGNMENTS_MAX:
            self._values.append((name, value))

    def assign_words(self, name: str, raws: Sequence[Raw]) -> None:
        """Assign the words that raw words become, separated by spaces."""
        words = [word.text for raw in raws for word in words_of(raw, self.constants)]
        self.assign(name, " ".join(words))

    def assign_each(self, name: str, raw: Raw) -> None:
        """Assign the words that a raw word becomes, one after another."""
        for word in words_of(raw, self.constants):
            self.assign(name, word.text)

    def assign_by_command(self, words: Sequence[str], stdin: str | None) -> None:
        """Assign what a command assigns, if it does; `stdin` is the text on its stdin.

        It is one of `printf -v NAME TEXT`, `read NAME <<< TEXT` and `set -- WORD…`.
        """
        start = list(words[:2])
        if start == ["printf", "-v"] and len(words) > 3:
            self.assign(words[2], " ".join(words[3:] if "%" not in words[3] else words[4:]))
        elif start[:1] == ["read"] and stdin is not None:
            for name in words[1:]:
                self.assign(name, stdin)
        elif start == ["set", "--"]:
            self.assign("@", " ".join(words[2:]))
            self.assign("*", " ".join(words[2:]))
            for number, text in enumerate(words[2 : 2 + POSITIONAL_MAX], 1):
                self.assign(str(number), text)

    def tables(self) -> list[Table]:
        """Return tables of constants to try, the most probable one first."""
        tables = [Table(self.constants, UNKNOWN_TEXT)]
        first = {**self.constants, **dict(reversed(self._values))}
        if first != self.constants:
            tables.append(Table(first, UNKNOWN_TEXT))
        tables.append(Table(self.constants, ""))
        # A variable that has one value after another, as in a loop.
        count = Counter(name for name, _ in self._values)
        repeated = [pair for pair in self._values if count[pair[0]] > 2][:REPEATED_MAX]
        return tables + [Table({**self.constants, name: value}, "") for name, value in repeated]
