"""What a child is to become; the keeper gets it as a tuple of these fields."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Program(NamedTuple):
    """What to run and as whom: all that a child needs to know."""

    argv: Sequence[str]
    """The program (a path, or a name to be found in `env`'s PATH) and its arguments."""
    env: Mapping[str, str]
    """The whole environment: nothing is added to it."""
    cwd: str
    """An absolute path."""
    umask: int
    rlimits: Sequence[tuple[int, int, int]] = ()
    """Triples of resource, soft and hard limit, as for `resource.setrlimit`."""
    fallback_argv: Sequence[str] | None = None
    """What to be instead when there is no file of `argv`'s name: a shell, given a line."""

    def marked(
        self, environment: Mapping[str, str], rlimits: Sequence[tuple[int, int, int]]
    ) -> "Program":
        """Return the program with the variables and limits of its tree, over its own."""
        return self._replace(env={**self.env, **environment}, rlimits=(*self.rlimits, *rlimits))
