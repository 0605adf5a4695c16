"""The types that the parser returns: a parsed line (`Script`) and a `SimpleCommand` in it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from acpterm.policy.words import Word

Input = Literal["", "pipe", "text", "computed"]
"""The stdin of a command: inherited (empty), a pipe, known text, or text that is not known.

`computed` is for example the output of a command in a process substitution.
"""

NO_CONSTANTS: Final[Mapping[str, str]] = MappingProxyType({})
"""No known values of variables."""


class SimpleCommand(NamedTuple):
    """A simple command of a line: a program with its arguments. It has at least one word."""

    words: tuple[Word, ...]
    others: tuple[tuple[Word, ...], ...] = ()
    """The words that the command would have with other values of variables: one tuple for each
    possibility. They serve only to find danger."""
    input: Input = ""
    text: str = ""
    """The text of a here-document or here-string on the command's stdin."""
    is_syntax: bool = False
    """Whether this is no command: a redirection (`> file`), or the start or end (`(`, `)`) of a
    subshell."""

    @property
    def name(self) -> str:
        """The name of the program, without its directory."""
        return self.words[0].text.rpartition("/")[2]


class Script(NamedTuple):
    """A parsed line: its commands, whether it is plain (see the package), and its own danger."""

    commands: tuple[SimpleCommand, ...]
    problem: str
    """Why the line is not plain; empty if it is."""
    danger: str = ""
    """Why the line is dangerous whatever its commands are; empty if it is not."""
    constants: Mapping[str, str] = NO_CONSTANTS
    """The last known value of each variable that the line assigns."""
    suspected: tuple[str, ...] = ()
    """Texts that may have commands which are not found, for finding danger only."""
