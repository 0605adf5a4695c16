"""The types that `wrappers` returns: the commands and texts that a wrapper executes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from acpterm.policy.syntax.command import Input
from acpterm.policy.syntax.readers import Reader
from acpterm.policy.words import Word

Kind = Literal["harmless", "executes", "suspected"]
"""How a wrapper executes an inner command.

- `harmless`: with the words, environment, user and directory that are written. The wrapper itself
  can do no harm: `nice` and `timeout`, for example;
- `executes`: with other privileges, arguments or environment, or otherwise changed;
- `suspected`: perhaps, since it is not known whether this text is a command at all. It counts only
  if it is dangerous, or if a rule asks about it or denies it.
"""
SUSPECTED_MAX: Final = 32
"""Maximum suspected commands, and maximum suspected texts, in one command."""

_DIRECTORIES: Final = frozenset(("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"))


class Inner(NamedTuple):
    """A command that another command executes: words, or text for a shell."""

    words: tuple[Word, ...]
    """The program and its arguments; empty if there is `text`."""
    text: str | None
    """The text for a shell; None if there are `words`."""
    kind: Kind
    input: Input = ""
    """The stdin of the command."""
    constants: Mapping[str, str] = MappingProxyType({})
    """Variables that the wrapper sets for the command, with their values."""
    reader: Reader | None = None
    """The shell that reads `text`; None for the shell that executes the wrapper."""
    directory: str | None = None
    """Where the command runs, seen from where the wrapper runs; None for there, or, for a suspected
    command, if that is not known."""


class Unwrapped(NamedTuple):
    """All that a command executes in addition to its own program."""

    inner: tuple[Inner, ...] = ()
    danger: str = ""
    """Why the command is dangerous as a wrapper: for example, "it executes computed text".

    Empty for every other command.
    """

    @property
    def is_harmless(self) -> bool:
        """Whether one inner command runs, its words, variables, user and directory unchanged."""
        return len(self.inner) == 1 and self.inner[0].kind == "harmless" and not self.danger


NOTHING: Final = Unwrapped()
"""The result for a command that executes nothing but its own program."""


def is_standard(program: str) -> bool:
    """Return whether `program` is a name without a directory, or in a directory of the system."""
    directory, slash, _ = program.rpartition("/")
    return not slash or directory in _DIRECTORIES
