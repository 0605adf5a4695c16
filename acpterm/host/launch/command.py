"""Decide what a `terminal/create` executes: a program, or text for a shell.

The specification leaves this open (ACP v1, "Terminals", `command` and `args`), and agents do both:

- with `args`, even an empty list: the program and its arguments, unchanged;
- without `args`: shell text, since that is what most agents send. But if `command` as a whole names
  a program, as one word or as a path that may contain spaces, that program is executed. The child
  process finds out (`Program.fallback_argv`): checking before the spawn would be another step, and
  a race;
- `_meta.acpterm.shell` overrides both.

The shell is POSIX (`sh -c`), neither interactive nor a login shell, regardless of `$SHELL`.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Final

from acpterm.runtime.command_line import command_line

# One word without special characters of a shell, or an absolute path without a newline. A relative
# name with spaces is always shell text: a directory `ls ` in a project is not the program `ls`.
_WORD: Final = re.compile(r"[\w@%+:,./-]+")
_PATH: Final = re.compile(r"/[^\n]*")
SUMMARY_MAX: Final = 4096
"""Characters of a command that are kept for lists and titles."""


def words(
    command: str, args: Sequence[str] | None, *, shell: bool | None, shell_path: str
) -> tuple[list[str], list[str] | None]:
    """Return the argv to execute, and a fallback argv for a file that does not exist, if any.

    `shell` is `_meta.acpterm.shell`; None leaves the decision to the rules above.
    """
    if shell is False or (shell is None and args is not None):
        return [command, *(args or ())], None
    line = f"{command} {shlex.join(args)}" if args else command
    # Without --, text such as "-x" would be an option of the shell.
    text = [shell_path, "-c", *(("--",) if line.startswith("-") else ()), line]
    if shell is None and (_WORD.fullmatch(command) or _PATH.fullmatch(command)):
        return [command], text
    return text, None


# `exec` of a name that does not exist would end the shell. So if there is a fallback, the name is
# looked up first; a builtin of the shell is run by the fallback.
_WITH_STDIN: Final = 'exec <"$1"; shift; exec "$@"'
_WITH_STDIN_OR_FALLBACK: Final = (
    'exec <"$1"; shift; case $(command -v -- "$1") in */*) exec "$1" ;; esac; shift; exec "$@"'
)


def with_stdin(
    path: str, argv: Sequence[str], fallback_argv: Sequence[str] | None, *, shell_path: str
) -> list[str]:
    """Return what to execute so that the program of `argv` has the file `path` as its stdin.

    `fallback_argv` is executed if there is no program of the name in `argv`.
    """
    if fallback_argv is None:
        return [shell_path, "-c", _WITH_STDIN, "acpterm", path, *argv]
    return [shell_path, "-c", _WITH_STDIN_OR_FALLBACK, "acpterm", path, *argv, *fallback_argv]


def summary(command: str, args: Sequence[str] | None) -> str:
    """Return a command as one line of at most `SUMMARY_MAX` characters, for lists and titles.

    The bound keeps lists small, whatever commands agents send.
    """
    words = None if args is None else [word[: SUMMARY_MAX + 1] for word in args[: SUMMARY_MAX + 1]]
    line = command_line(command[: SUMMARY_MAX + 1], words)
    return line if len(line) <= SUMMARY_MAX else f"{line[: SUMMARY_MAX - 1]}…"
