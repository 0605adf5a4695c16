"""Decide what a `terminal/create` request executes: a program, or text for a shell.

ACP v1 leaves open whether `command` is a program or shell text ("Terminals"), and agents send both.
The rules:

- With `args`, even an empty list: `command` is a program, and is executed with these arguments.
- Without `args`: `command` is shell text, since that is what most agents send. But if `command` as
  a whole is the absolute path of a program, which may contain spaces, that program is executed.
  Whether the program exists is decided when it is executed (`Program.fallback_argv`), since the
  result of an earlier check could be outdated.
- `_meta.acpterm.shell` overrides both rules.

The shell is that of the setting `shell`: bash where it is installed (`runtime.command_line`). It is
called with `-c`, and is neither interactive nor a login shell. `$SHELL` is ignored.

A line that is too long for an argument is written to a private file. A first shell opens the file
outside of a sandbox, removes it, and executes the second one, which reads the line from the
descriptor, closes the descriptor, and evaluates the line.
"""

import glob
import os
import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from acpterm.runtime.command_line import command_line, shell_line

# A relative name is always shell text: a directory `ls ` in a project is not the program `ls`.
_PATH: Final = re.compile(r"/[^\n]*")
ARGUMENT_BYTES_MAX: Final = 128 * 1024 - 1
"""Maximum size of a line that is an argument of the shell: that of Linux, for all systems."""
_LINE_PREFIX: Final = "acpterm-line-"
_LINE_FILE_LIFETIME_S: Final = 60.0
SUMMARY_MAX: Final = 4096
"""Maximum characters of a command in lists and titles."""


class Words(NamedTuple):
    argv: list[str]
    fallback_argv: list[str] | None = None
    """The argv to execute if the program of `argv` does not exist; None for no fallback."""
    long_line: str | None = None
    """A line that `argv` reads from a file (`with_line`); None for all others."""


def words(
    command: str, args: Sequence[str] | None, *, shell: bool | None, shell_path: str
) -> Words:
    """Return what to execute; `shell` None decides by the rules of this module."""
    if shell is False or (shell is None and args is not None):
        return Words([command, *(args or ())])
    line = shell_line(command, args)
    if len(line) > ARGUMENT_BYTES_MAX or len(os.fsencode(line)) > ARGUMENT_BYTES_MAX:
        is_bash = os.path.basename(shell_path) == "bash"
        return Words([shell_path, "-c", _BASH_LINE if is_bash else _LINE], None, line)
    # Without --, text such as "-x" would be an option of the shell.
    text = [shell_path, "-c", *(("--",) if line.startswith("-") else ()), line]
    if shell is None and _PATH.fullmatch(command):
        return Words([command], text)
    return Words(text)


# Evaluates the line on descriptor 9. Nothing of this may be visible in the line: $0, $#, $?, the
# line numbers of errors. In bash, the variable already has the text of -c. Only the name in a
# message about a syntax error differs: eval instead of -c. No bash takes a longer -c from a file.
_BASH_LINE: Final = (
    'IFS= read -r -d "" BASH_EXECUTION_STRING <&9; exec 9<&-; eval -- "$BASH_EXECUTION_STRING"'
)
_LINE: Final = 'set -- "$(cat <&9)"; exec 9<&-; eval "set --; $1"'
_WITH_LINE: Final = 'exec 9<"$1"; PATH=$PATH:/bin:/usr/bin command rm -f -- "$1"; shift; exec "$@"'


def with_line(path: str, argv: Sequence[str]) -> list[str]:
    """Return the argv of a shell that runs `argv` with a removed file as descriptor 9."""
    # Not the user's shell: ksh closes descriptors from 3 on when it executes a program.
    return ["/bin/sh", "-c", _WITH_LINE, "acpterm", path, *argv]


def write_line(line: str) -> str:
    """Write a line to a new private file; return its path."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    directory = runtime if os.access(runtime, os.W_OK) else tempfile.gettempdir()
    _remove_old(directory)
    descriptor, path = tempfile.mkstemp(prefix=_LINE_PREFIX, dir=os.path.abspath(directory))
    try:
        with open(descriptor, "wb") as file:
            file.write(os.fsencode(line))
    except BaseException:
        os.unlink(path)
        raise
    return path


def _remove_old(directory: str) -> None:
    """Remove the files that programs, killed early, did not open."""
    for path in glob.iglob(os.path.join(glob.escape(directory), f"{_LINE_PREFIX}*")):
        with suppress(OSError):
            if time.time() - os.stat(path).st_mtime > _LINE_FILE_LIFETIME_S:
                os.unlink(path)


# `exec` of a program that does not exist would end the shell. So if there is a fallback, the
# program is looked up first. A builtin of the shell is executed by the fallback.
_PROGRAM_OR_ERROR: Final = (
    'command -v -- "$1" >/dev/null || case $1 in */*) ;; '
    '*) printf "acpterm: %s: command not found\\n" "$1" >&2; exit 127 ;; esac; exec "$@"'
)
_PROGRAM_OR_FALLBACK: Final = (
    'case $(command -v -- "$1") in */*) exec "$1" ;; esac; shift; exec "$@"'
)
# Only a named pipe: a file could be one that the sandbox hides, and `/proc/PID/fd/0` may be the
# anonymous pipe of another program. `$1` may be another file after the first check.
_WITH_STDIN: Final = (
    '[ -p "$1" ] && exec <"$1" && [ -p /dev/fd/0 ] && '
    "case $(PATH=/usr/bin:/bin readlink /dev/fd/0) in pipe:*) false ;; esac || "
    '{ echo "acpterm: stdin is no named pipe" >&2; exit 126; }; shift; '
)


def with_stdin(
    path: str, argv: Sequence[str], fallback_argv: Sequence[str] | None, *, shell_path: str
) -> list[str]:
    """Return the argv of a shell that runs `argv`, or the fallback, with a named pipe as stdin."""
    if fallback_argv is None:
        return [shell_path, "-c", _WITH_STDIN + _PROGRAM_OR_ERROR, "acpterm", path, *argv]
    script = _WITH_STDIN + _PROGRAM_OR_FALLBACK
    return [shell_path, "-c", script, "acpterm", path, *argv, *fallback_argv]


def summary(command: str, args: Sequence[str] | None) -> str:
    """Return a command as one line of at most `SUMMARY_MAX` characters, for lists and titles."""
    words = None if args is None else [word[: SUMMARY_MAX + 1] for word in args[: SUMMARY_MAX + 1]]
    line = command_line(command[: SUMMARY_MAX + 1], words)
    return line if len(line) <= SUMMARY_MAX else f"{line[: SUMMARY_MAX - 1]}…"
