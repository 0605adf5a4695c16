r"""The typed line and the command file of bash and zsh. Their rc files define its functions."""

from acpterm.shell.complete import is_complete

_BEGIN = '{{ __acpterm_begin {n} "$?" && :; }} >/dev/null 2>&1'
_LINE = (
    " " + _BEGIN + r"; \builtin . {path}"
    '; {{ __acpterm_again "$?" && :; }} >/dev/null 2>&1'
)


def command_file(n: int, command: str, flags: str, end: str) -> str:
    """Return the contents of the file of command `n`; `flags` is the shell's last known ``$-``.

    `end` is the last line, which reports exit code and pipe status.
    """
    if "v" in flags:
        # `set -v` prints the lines of the file.
        return command + "\n"
    begin = _BEGIN.format(n=n) + "\n" if "x" in flags else ""
    return begin + command + (end if is_complete(command) else "\n")


def typed_line(n: int, path: str) -> str:
    """Return the line that sources the file of command `n`, whose quoted path is `path`."""
    return _LINE.format(n=n, path=path)
