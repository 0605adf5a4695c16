"""The specification of a program to start, which the worker sends to the keeper."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Program(NamedTuple):
    """A program to start, and its execution context.

    The keeper receives it as a tuple of exactly these fields. Do not add a field: a running keeper
    of an earlier version does not accept a longer tuple. Add one to the message `spawn` instead
    (`keeper.protocol`), which such a keeper ignores.
    """

    argv: Sequence[str]  # the first is a path, or a name to search for in the PATH of `env`
    env: Mapping[str, str]  # complete: nothing is inherited
    cwd: str  # absolute
    umask: int
    # resource, soft, hard; a later one overrides an earlier one
    rlimits: Sequence[tuple[int, int, int]] = ()
    # a shell that runs `argv[0]` as a command, if it does not exist
    fallback_argv: Sequence[str] | None = None

    def marked(
        self, environment: Mapping[str, str], rlimits: Sequence[tuple[int, int, int]]
    ) -> "Program":
        """Return a copy with the marks of a terminal, which override its own."""
        return self._replace(env={**self.env, **environment}, rlimits=(*self.rlimits, *rlimits))
