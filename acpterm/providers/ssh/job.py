r"""A job: the description of a program for the other host, as lines of text.

The lines are: the working directory; the umask in octal digits, or nothing; the number of
variables, and the variables; and for each command to try, the number of its words, and the words.
In a line, every byte that is not printable ASCII is `\0` and three octal digits, and so is the
backslash.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from acpterm.providers.provider import Command
from acpterm.providers.ssh.scripts import JOB_VARIABLE

_INHERITED: Final = re.compile(
    r"COLORTERM|LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR(?:_FORCE)?|[A-Z_]*PAGER"
    r"|LESS"
)
"""The variables from here that a program gets besides those that were requested.

The others are those of the login there. `TERM` is passed on by ssh itself.
"""
_ESCAPED: Final = re.compile(rb"[^ -\[\]-~]")


def lines(command: Command, directory: str, identifier: str) -> list[bytes]:
    """Return the lines of a job. `directory` is the working directory on the other host."""
    inherited = {name: text for name, text in command.env.items() if _INHERITED.fullmatch(name)}
    env = {**inherited, **command.requested, JOB_VARIABLE: identifier}
    umask = "" if command.umask is None else f"{command.umask:04o}"
    found = [directory, umask, str(len(env)), *(f"{name}={text}" for name, text in env.items())]
    for argv in _commands(command):
        found += [str(len(argv)), *argv]
    return [_escape(line) for line in found]


def _commands(command: Command) -> list[Sequence[str]]:
    """Return the argv of the command, and what to execute instead if there is no such program."""
    found = [command.argv, *([command.fallback_argv] if command.fallback_argv else [])]
    # The shell of the settings may be one that the other host does not have.
    shells = [argv for argv in found if argv[0] == command.shell != "/bin/sh"]
    return [*found, *(["/bin/sh", *argv[1:]] for argv in shells)]


def remote_directory(directory: str, mapping: Mapping[str, str]) -> str:
    """Return the directory on the other host that stands for `directory`."""
    directory = os.path.normpath(directory)
    for here in sorted(mapping, key=len, reverse=True):
        base = os.path.normpath(here)
        if directory == base:
            return mapping[here]
        if directory.startswith(base.rstrip("/") + "/"):
            return os.path.join(mapping[here], directory[len(base.rstrip("/")) + 1 :])
    return directory


def _escape(text: str) -> bytes:
    return _ESCAPED.sub(lambda found: b"\\0%03o" % found[0][0], os.fsencode(text))
