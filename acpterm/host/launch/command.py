"""Decide what a `terminal/create` request executes: a program, or text for a shell.

ACP v1 leaves open whether `command` is a program or shell text ("Terminals"), and agents send both.
The rules:

- With `args`, even an empty list: `command` is a program, and is executed with these arguments.
- Without `args`: `command` is shell text, since that is what most agents send. But if `command` as
  a whole names a program, as one word or as a path that may contain spaces, that program is
  executed. Whether the program exists is decided when it is executed (`Program.fallback_argv`),
  since the result of an earlier check could be outdated.
- `_meta.acpterm.shell` overrides both rules.

The shell is that of the setting `shell`, a POSIX shell. It is called with `-c`, and is neither
interactive nor a login shell. `$SHELL` is ignored.
"""

import re
from collections.abc import Sequence
from typing import Final

from acpterm.runtime.command_line import command_line, shell_line

# One word without special characters of a shell, or an absolute path without a newline. A relative
# name with spaces is always shell text: a directory `ls ` in a project is not the program `ls`.
_WORD: Final = re.compile(r"[\w@%+:,./-]+")
_PATH: Final = re.compile(r"/[^\n]*")
SUMMARY_MAX: Final = 4096
"""Maximum characters of a command in lists and titles."""


def words(
    command: str, args: Sequence[str] | None, *, shell: bool | None, shell_path: str
) -> tuple[list[str], list[str] | None]:
    """Return the argv to execute for a command, and a fallback argv or None.

    The fallback is executed if the program of the first argv does not exist. `shell` says whether
    `command` is shell text; None decides by the rules of this module. `shell_path` is the shell's
    path.
    """
    if shell is False or (shell is None and args is not None):
        return [command, *(args or ())], None
    line = shell_line(command, args)
    # Without --, text such as "-x" would be an option of the shell.
    text = [shell_path, "-c", *(("--",) if line.startswith("-") else ()), line]
    if shell is None and (_WORD.fullmatch(command) or _PATH.fullmatch(command)):
        return [command], text
    return text, None


# `exec` of a program that does not exist would end the shell. So if there is a fallback, the
# program is looked up first. A builtin of the shell is executed by the fallback.
_WITH_STDIN: Final = 'exec <"$1"; shift; exec "$@"'
_WITH_STDIN_OR_FALLBACK: Final = (
    'exec <"$1"; shift; case $(command -v -- "$1") in */*) exec "$1" ;; esac; shift; exec "$@"'
)


def with_stdin(
    path: str, argv: Sequence[str], fallback_argv: Sequence[str] | None, *, shell_path: str
) -> list[str]:
    """Return the argv of a shell that executes `argv` with the file at `path` as its stdin.

    The shell executes `fallback_argv`, if given, when the program of `argv` does not exist.
    `shell_path` is the shell's path.
    """
    if fallback_argv is None:
        return [shell_path, "-c", _WITH_STDIN, "acpterm", path, *argv]
    return [shell_path, "-c", _WITH_STDIN_OR_FALLBACK, "acpterm", path, *argv, *fallback_argv]


def summary(command: str, args: Sequence[str] | None) -> str:
    """Return a command as one line of at most `SUMMARY_MAX` characters, for lists and titles."""
    words = None if args is None else [word[: SUMMARY_MAX + 1] for word in args[: SUMMARY_MAX + 1]]
    line = command_line(command[: SUMMARY_MAX + 1], words)
    return line if len(line) <= SUMMARY_MAX else f"{line[: SUMMARY_MAX - 1]}…"
