"""The entry point of `wrappers`: finds what a command executes.

The name of the command's program determines which module of `wrappers` parses the command.
"""

from collections.abc import Callable, Mapping
from typing import Final

from acpterm.policy.syntax.command import SimpleCommand
from acpterm.policy.wrappers import prefixes, shells, suspects
from acpterm.policy.wrappers.unwrapped import NOTHING, Unwrapped

_SPECIAL: Final[Mapping[str, Callable[[SimpleCommand], Unwrapped]]] = {
    "command": prefixes.command_builtin,
    "coproc": prefixes.coproc,
    "env": prefixes.env,
    "find": prefixes.find,
    "xargs": prefixes.xargs,
    "eval": shells.eval_builtin,
    "source": shells.source,
    ".": shells.source,
    "trap": shells.trap,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), shells.awk),
    "alias": suspects.alias,
    "crontab": suspects.crontab,
    "git": suspects.git,
}


def unwrap(command: SimpleCommand) -> Unwrapped:
    """Return what a command executes; `NOTHING` if its program is not a wrapper."""
    name = command.name
    special = _SPECIAL.get(name)
    if special is not None:
        return special(command)
    for find in (shells.shell, prefixes.prefix, shells.interpreter, suspects.suspect):
        found = find(command)
        if found is not None:
            return found
    return NOTHING
