"""Aliases of commands, and the error message for a command that does not exist."""

from collections.abc import Sequence
from typing import Final

ALIASES: Final = {
    "a": "attach",
    "list": "ls",
    "new": "run",
    "ps": "ls",
    "stop": "kill",
}
"""Aliases of commands: names that mean the same in docker, gh or tmux."""

# Commands of other programs that take other arguments, and what to run instead.
_ELSEWHERE: Final = {
    "attach-session": "attach TERMINAL",
    "capture-pane": "screen TERMINAL",
    "config": "doctor, or docs/settings.md",
    "create": "run COMMAND",
    "daemon": "serve",
    "delete": "rm TERMINAL",
    "exec": "run COMMAND",
    "kill-server": "shutdown",
    "kill-session": "kill TERMINAL, or rm TERMINAL",
    "list-sessions": "ls",
    "log": "logs TERMINAL",
    "new-session": "run COMMAND",
    "ping": "status",
    "remove": "rm TERMINAL",
    "send-keys": "send TERMINAL TEXT --enter, or --key NAME",
    "show": "screen TERMINAL, or logs TERMINAL",
    "start": "run COMMAND",
    "tail": "logs --follow TERMINAL",
    "top": "ls --watch",
    "watch": "ls --watch",
}


def no_such_command(name: str, commands: Sequence[str]) -> str:
    """Return the message for a command that does not exist."""
    message = f"there is no command {name!r}"
    if name in _ELSEWHERE:
        return f"{message}: use acpterm {_ELSEWHERE[name]}"
    import difflib  # noqa: PLC0415  only needed for a wrong name

    found = difflib.get_close_matches(name.lower(), [*commands, "help", "version"], n=3)
    if not found:
        return f"{message}: acpterm --help lists all commands"
    return f"{message}: did you mean {' or '.join(found)}?"
