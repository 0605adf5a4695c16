"""Commands of a shell line, as the parser returns them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from acpterm.policy.words import Word

Input = Literal["", "pipe", "text", "computed"]
"""What the stdin of a command is: inherited, a pipe, known text, or the output of a command."""

NO_CONSTANTS: Final[Mapping[str, str]] = MappingProxyType({})


class Command(NamedTuple):
    """A simple command of a line. It has at least one word."""

    words: tuple[Word, ...]
    others: tuple[tuple[Word, ...], ...] = ()
    """The words if other values of variables are assumed; for finding danger only."""
    input: Input = ""
    text: str = ""
    """The text of a here-document or here-string on the command's stdin."""

    @property
    def name(self) -> str:
        """Return the name of the program, without its directory."""
        return self.words[0].text.rpartition("/")[2]


class Script(NamedTuple):
    """A parsed line."""

    commands: tuple[Command, ...]
    problem: str
    """Why the line is not plain; empty if it is."""
    danger: str = ""
    """Why the line itself is dangerous; empty if it is not."""
    constants: Mapping[str, str] = NO_CONSTANTS
    suspected: tuple[Command, ...] = ()
    """If the line cannot be parsed: what may be commands in it, for finding danger only."""
