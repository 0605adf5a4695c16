"""Collects the values that a shell line assigns to variables, to find danger such as `X=rm; $X .`.

A shell assigns variables while it runs a line; a parser runs nothing. So all values that the line
assigns are collected first, and then replace the variables in all words of the line. If the line
assigns several values to a variable, the words are tried with several tables of values.

A *raw word* (`Raw`) is a word as it is written, which a shell turns into arguments (`words_of`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from acpterm.policy.words import UNKNOWN_TEXT, Raw, words_of

VALUE_MAX: Final = 256
"""Maximum characters of a variable's value; a longer value counts as unknown."""
ASSIGNMENTS_MAX: Final = 256
"""Maximum assignments in a line whose values are tried."""
REPEATED_MAX: Final = 8
"""Maximum values that are tried, in total, of the variables that a line assigns more than twice."""
POSITIONAL_MAX: Final = 8
"""Maximum positional parameters (`$1` and so on) whose values are collected."""


class Table(NamedTuple):
    """Values of variables that are tried in the words of a line."""

    constants: Mapping[str, str]
    """The values, by the names of the variables."""
    unknown: str
    """What replaces each text that is not known: `UNKNOWN_TEXT`, or nothing."""


class Variables:
    """The variables that a line assigns, in its order; `constants` are set before the line."""

    def __init__(self, constants: Mapping[str, str]) -> None:
        self.constants: Final = {"IFS": " ", **constants}
        """The last value of each variable."""
        self._values: Final[list[tuple[str, str]]] = []

    def declare(self, name: str) -> None:
        """Record that the line declares a variable: it is empty unless it has a value already."""
        self.constants.setdefault(name, "")

    def assign(self, name: str, value: str) -> None:
        """Record that the line assigns a value to a variable."""
        if len(value) > VALUE_MAX:  # `X=$X$X` doubles the value
            value = UNKNOWN_TEXT
        self.constants[name] = value
        if len(self._values) < ASSIGNMENTS_MAX:
            self._values.append((name, value))

    def assign_words(self, name: str, raws: Sequence[Raw]) -> None:
        """Turn the raw words `raws` into arguments; assign these as one value, joined by spaces."""
        words = [word.text for raw in raws for word in words_of(raw, self.constants)]
        self.assign(name, " ".join(words))

    def assign_each(self, name: str, raw: Raw) -> None:
        """Turn the raw word `raw` into arguments; assign them one by one, as `for` does."""
        for word in words_of(raw, self.constants):
            self.assign(name, word.text)

    def assign_by_command(self, words: Sequence[str], stdin: str | None) -> None:
        """Record what `printf -v NAME TEXT`, `read NAME <<< TEXT` and `set -- WORD…` assign."""
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
        """Return the tables of values to try, the most probable one first."""
        tables = [Table(self.constants, UNKNOWN_TEXT)]
        first = {**self.constants, **dict(reversed(self._values))}
        if first != self.constants:
            tables.append(Table(first, UNKNOWN_TEXT))
        tables.append(Table(self.constants, ""))
        # Try each value of a variable that has many values, such as the variable of a loop.
        count = Counter(name for name, _ in self._values)
        repeated = [pair for pair in self._values if count[pair[0]] > 2][:REPEATED_MAX]
        return tables + [Table({**self.constants, name: value}, "") for name, value in repeated]
