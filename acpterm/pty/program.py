"""The program that a child executes. The keeper receives it as a tuple of these fields."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Program(NamedTuple):
    """Everything that a child needs to execute a program."""

    argv: Sequence[str]
    """The program (a path, or a name to search for in the PATH of `env`) and its arguments."""
    env: Mapping[str, str]
    """The complete environment."""
    cwd: str
    """An absolute path."""
    umask: int
    rlimits: Sequence[tuple[int, int, int]] = ()
    """Triples of resource, soft and hard limit, as for `resource.setrlimit`."""
    fallback_argv: Sequence[str] | None = None
    """Executed instead if there is no file named `argv[0]`: a shell with the line to run."""

    def marked(
        self, environment: Mapping[str, str], rlimits: Sequence[tuple[int, int, int]]
    ) -> "Program":
        """Return the program with the variables and limits of its tree, which override its own."""
        return self._replace(env={**self.env, **environment}, rlimits=(*self.rlimits, *rlimits))
