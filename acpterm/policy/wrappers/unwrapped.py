"""What a command executes besides its own program."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from acpterm.policy.syntax.command import Input
from acpterm.policy.words import Word

Kind = Literal["harmless", "executes", "suspected"]
"""How a wrapper executes a command: exactly as it is written, otherwise, or perhaps."""
SUSPECTED_MAX: Final = 32
"""Maximum suspected commands of each kind (rests of the arguments, texts) in one command."""

_DIRECTORIES: Final = frozenset(("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"))


class Inner(NamedTuple):
    """A command that another command executes: words, or text for a shell."""

    words: tuple[Word, ...]
    text: str | None
    kind: Kind
    input: Input = ""
    constants: Mapping[str, str] = MappingProxyType({})


class Unwrapped(NamedTuple):
    """What a command executes."""

    inner: tuple[Inner, ...] = ()
    danger: str = ""
    """Why the command executes something that cannot be known; empty if it does not."""

    @property
    def is_harmless(self) -> bool:
        """Return whether the command does nothing but execute one command as it is written."""
        return len(self.inner) == 1 and self.inner[0].kind == "harmless" and not self.danger


NOTHING: Final = Unwrapped()
"""What a command executes that is no wrapper."""


def is_standard(program: str) -> bool:
    """Return whether a program is given by its name only, or in a directory of the system."""
    directory, slash, _ = program.rpartition("/")
    return not slash or directory in _DIRECTORIES
