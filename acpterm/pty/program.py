"""The specification of a program to start, which the worker sends to the keeper."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Program(NamedTuple):
    """The specification of a program to start: its arguments and its execution context.

    The keeper receives it as a tuple of exactly these fields. Do not add a field: a running keeper
    of an earlier version does not accept a longer tuple. Add a field to the message `spawn`
    (`keeper.protocol`) instead, which such a keeper ignores.
    """

    argv: Sequence[str]
    """The program (a path, or a name to search for in the PATH of `env`) and its arguments."""
    env: Mapping[str, str]
    """The complete environment: nothing is inherited."""
    cwd: str
    """The working directory, an absolute path."""
    umask: int
    """The file mode creation mask."""
    rlimits: Sequence[tuple[int, int, int]] = ()
    """Triples of resource, soft limit and hard limit, as for `resource.setrlimit`. A later triple
    overrides an earlier one of the same resource."""
    fallback_argv: Sequence[str] | None = None
    """What to execute instead if the program `argv[0]` does not exist; None for nothing.

    It is the argv of a shell that runs `argv[0]` as the text of a command.
    """

    def marked(
        self, environment: Mapping[str, str], rlimits: Sequence[tuple[int, int, int]]
    ) -> "Program":
        """Return a copy of this specification with the marks of a terminal added.

        The marks are the variables `environment` and the limits `rlimits`. They override variables
        and limits of this specification.
        """
        return self._replace(env={**self.env, **environment}, rlimits=(*self.rlimits, *rlimits))
