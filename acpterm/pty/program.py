"""What a child is to become, and how it is told.

Wire, to a blank of the fork server: 4 bytes, little-endian, the length of what follows; `marshal`
of the fields, in order, which are the arguments of `child.become`.
"""

import marshal
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
    otherwise: Sequence[str] | None = None
    """What to be instead when there is no file of `argv`'s name: a shell, given a line."""

    def marked(
        self, environment: Mapping[str, str], rlimits: Sequence[tuple[int, int, int]]
    ) -> "Program":
        """Return the program with the variables and limits of its tree, over its own."""
        return self._replace(env={**self.env, **environment}, rlimits=(*self.rlimits, *rlimits))


def pack(program: Program) -> bytes:
    """Write what a blank reads."""
    fields = (
        list(program.argv),
        dict(program.env),
        program.cwd,
        program.umask,
        list(program.rlimits),
        None if program.otherwise is None else list(program.otherwise),
    )
    body = marshal.dumps(fields)
    return len(body).to_bytes(4, "little") + body
