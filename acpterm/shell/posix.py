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
    """Return the contents of the file of command `n`, whose text is `command`.

    `flags` is the shell's last known ``$-``; the contents depend on its options `v` and `x`.
    `end` is the shell text that saves exit code and pipe status after the command.
    """
    if "v" in flags:
        # With `set -v` the shell prints each line of the file: print none but the command's.
        return command + "\n"
    begin = _BEGIN.format(n=n) + "\n" if "x" in flags else ""
    return begin + command + (end if is_complete(command) else "\n")


def typed_line(n: int, path: str) -> str:
    """Return the line that sources the file of command `n`, whose quoted path is `path`."""
    return _LINE.format(n=n, path=path)
