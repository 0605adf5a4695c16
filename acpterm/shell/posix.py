r"""The typed line and the command file, by which acpterm runs a command in bash or zsh.

acpterm types the line into the shell. The line executes the file, which contains the command. Both
call functions that acpterm's rc file for the shell defines, such as ``__acpterm_begin``.
"""

from acpterm.shell.complete import is_complete

_BEGIN = '{{ __acpterm_begin {n} "$?" && :; }} >/dev/null 2>&1'
_LINE = (
    " " + _BEGIN + r"; \builtin . {path}"
    '; {{ __acpterm_again "$?" && :; }} >/dev/null 2>&1'
)


def command_file(n: int, command: str, flags: str, end: str) -> str:
    """Return the file of command `n`, which `end` ends by saving exit code and pipe status."""
    if "v" in flags:
        # With `set -v` the shell prints each line of the file: print none but the command's.
        return command + "\n"
    begin = _BEGIN.format(n=n) + "\n" if "x" in flags else ""
    return begin + command + (end if is_complete(command) else "\n")


def typed_line(n: int, path: str) -> str:
    """Return the line that sources the command's file by its quoted path."""
    return _LINE.format(n=n, path=path)
