r"""A job: the description of a program for the other host, as lines of text.

The lines are: the working directory; the umask in octal digits, or an empty line; the number of
variables; the variables; and one or more alternative commands, each as the number of its words and
the words. The first command whose program exists on the other host is executed. In a line, `\0`
and three octal digits replace each backslash, and each byte that is not printable ASCII.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from acpterm.providers.environment import FORWARDED
from acpterm.providers.provider import Command
from acpterm.providers.ssh.scripts import JOB_VARIABLE

_ESCAPED: Final = re.compile(rb"[^ -\[\]-~]")


def lines(command: Command, directory: str, identifier: str) -> list[bytes]:
    """Return the lines of the job `identifier`, which runs `command` on the other host."""
    forwarded = {name: text for name, text in command.env.items() if FORWARDED.fullmatch(name)}
    # Without SHLVL, the bash of Debian reads ~/.bashrc if it is the first shell after ssh.
    env = {"SHLVL": "1", **forwarded, **command.requested, JOB_VARIABLE: identifier}
    umask = "" if command.umask is None else f"{command.umask:04o}"
    found = [directory, umask, str(len(env)), *(f"{name}={text}" for name, text in env.items())]
    for argv in _commands(command):
        found += [str(len(argv)), *argv]
    return [_escape(line) for line in found]


def _commands(command: Command) -> list[Sequence[str]]:
    """Return the argvs to try in this order: the first whose program exists is executed."""
    found = [command.argv, *([command.fallback_argv] if command.fallback_argv else [])]
    # The other host may not have the shell of the settings: another bash or /bin/sh replaces it.
    others = ("bash", "/bin/sh") if command.shell.endswith("/bash") else ("/bin/sh",)
    shells = [argv for argv in found if argv[0] == command.shell != "/bin/sh"]
    return [*found, *([other, *argv[1:]] for argv in shells for other in others)]


def remote_directory(directory: str, mapping: Mapping[str, str]) -> str:
    """Return the path on the other host, by the longest local directory in `mapping`."""
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
