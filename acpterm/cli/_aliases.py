"""Names of commands in other programs, and the message for a command that does not exist."""

from collections.abc import Sequence
from typing import Final

ALIASES: Final = {
    "a": "attach",
    "list": "ls",
    "new": "run",
    "ps": "ls",
    "stop": "kill",
}
"""Names that also work: those of docker, gh and tmux that mean the same."""

# Names of commands that take other arguments than ours do.
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
    wrong = f"there is no command {name!r}"
    if name in _ELSEWHERE:
        return f"{wrong}: use acpterm {_ELSEWHERE[name]}"
    import difflib  # noqa: PLC0415  only needed for a wrong name

    found = difflib.get_close_matches(name.lower(), [*commands, "help", "version"], n=3)
    if not found:
        return f"{wrong}: acpterm --help lists all commands"
    return f"{wrong}: did you mean {' or '.join(found)}?"
