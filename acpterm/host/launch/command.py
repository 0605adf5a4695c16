"""Which program a `terminal/create` asks for: one to be executed, or text for the shell.

The specification does not say (ACP v1, "Terminals", `command` and `args`); agents do both. So:

- `args` given, be it empty: the program and its arguments, as they are;
- no `args`: shell text, since that is what most agents send. Except where the whole of `command`
  names a program, one word or a path that may hold spaces: then it is that program. The child
  finds out (`Program.otherwise`): looking before would be one step and a race more.
- `_meta.acpterm.shell` overrules both.

The shell is POSIX (`sh -c`), neither interactive nor a login shell, whatever `$SHELL` is.
"""

import os
import re
import shlex
from collections.abc import Sequence

# One word without any meaning to a shell, or an explicit path with anything but lines in it. A
# relative name with spaces is always shell text: a folder `ls ` in a project is no `ls`.
_WORD = re.compile(r"[\w@%+:,./-]+")
_PATH = re.compile(r"/[^\n]*")
_SHELL = re.compile(r"(|ba|da|k|z)sh")
_LINE = re.compile(r"-[a-z]*c")
# Characters of a command that are remembered, to be shown.
SUMMARY_MAX = 4096


def words(
    command: str, args: Sequence[str] | None, *, shell: bool | None, shell_path: str
) -> tuple[list[str], list[str] | None]:
    """Give what to execute, and what to execute when there is no such file, if anything.

    `shell` True or False is the agent's own word for it; None leaves it to the guess.
    """
    if shell is False or (shell is None and args is not None):
        return [command, *(args or ())], None
    line = f"{command} {shlex.join(args)}" if args else command
    text = [shell_path, "-c", line]
    if shell is None and (_WORD.fullmatch(command) or _PATH.fullmatch(command)):
        return [command], text
    return text, None


# `exec` of a name that is none would end the shell, so the name is looked up first, if there is
# something else to be; a builtin of the shell's is that something.
_WITH_STDIN = 'exec <"$1"; shift; exec "$@"'
_OR_LINE = (
    'exec <"$1"; shift; case $(command -v -- "$1") in */*) exec "$1" ;; esac; shift; exec "$@"'
)


def with_stdin(
    path: str, argv: Sequence[str], otherwise: Sequence[str] | None, *, shell_path: str
) -> list[str]:
    """Return what to execute so that the program of `argv` has the file `path` as its stdin.

    `otherwise` is executed if there is no program of the name that `argv` is.
    """
    if otherwise is None:
        return [shell_path, "-c", _WITH_STDIN, "acpterm", path, *argv]
    return [shell_path, "-c", _OR_LINE, "acpterm", path, *argv, *otherwise]


def summary(command: str, args: Sequence[str] | None) -> str:
    """Give a command as `in_a_line` does, but at most `MOST` characters of it.

    For lists and titles: whatever an agent asks for, each of them stays small.
    """
    words = None if args is None else [word[: SUMMARY_MAX + 1] for word in args[: SUMMARY_MAX + 1]]
    line = one_line(command[: SUMMARY_MAX + 1], words)
    return line if len(line) <= SUMMARY_MAX else f"{line[: SUMMARY_MAX - 1]}…"


def one_line(command: str, args: Sequence[str] | None) -> str:
    """Give a command in one line, as a person would type it.

    `sh -c LINE` and `bash -l -c LINE` are how some agents say what others say as a line.
    """
    args = args or ()
    if len(args) > 1 and _SHELL.fullmatch(os.path.basename(command)) and _LINE.fullmatch(args[-2]):
        return args[-1]
    return shlex.join([command, *args]) if args else command
