"""Parses what the user types after `/terminal` into an action."""

import re
from typing import Final, NamedTuple

NAME: Final = "terminal"
DESCRIPTION: Final = "List, start and control your terminals"
HINT: Final = (
    "list | start <command> | send <sessionId> <input> | output <sessionId> | stop <sessionId> | "
    "provider get|select|set|list"
)
USAGE: Final = """\
/terminal list                       List all active terminal sessions
/terminal start <command>            Start a new terminal session
/terminal send <sessionId> <input>   Send input to a session, and Enter
/terminal output <sessionId>         Get complete output without truncation
/terminal stop <sessionId>           Terminate a session
/terminal provider get               Display current provider
/terminal provider select            Select provider interactively
/terminal provider set <name>        Set provider by name
/terminal provider list              List all providers"""

_WORD: Final = re.compile(r"\s*(\S*)[ \t]*(.*)", re.DOTALL)


class UsageError(Exception):
    """The action is not valid, or is `help`: the message is the usage, after the reason if any."""


class ChatAction(NamedTuple):
    """What the user asks for: `list`, `start`, `send`, `output`, `stop` or `provider`.

    `target` is the id or name of a terminal; for `provider`, one of get, select, set and list.
    """

    name: str
    target: str = ""
    text: str = ""
    """The command to start, the text to type, or the provider to set."""
    args: list[str] | None = None
    """The arguments of the program to start; None if the command is shell text."""


def parse(line: str) -> ChatAction:
    """Parse the text after `/terminal`. Raises `UsageError`."""
    name, rest = _split(line)
    target, text = _split(rest)
    match name:
        case "list":
            return ChatAction(name)
        case "start":
            if command := rest.strip():
                return ChatAction(name, text=command)
            raise _invalid("/terminal start needs a command")
        case "send" | "output" | "stop":
            if not target:
                raise _invalid(f"/terminal {name} needs a session id")
            return ChatAction(name, target, text.rstrip("\r\n") if name == "send" else "")
        case "provider":
            return _provider(target, text.strip())
        case "" | "help":
            raise UsageError(USAGE)
        case _:
            raise _invalid(f"there is no action {name!r}")


def _provider(what: str, name: str) -> ChatAction:
    if not what:
        raise _invalid("/terminal provider needs one of get, select, set and list")
    if what not in ("get", "select", "set", "list"):
        raise _invalid(f"there is no action 'provider {what}'")
    if what == "set" and not name:
        raise _invalid("/terminal provider set needs the name of a provider")
    return ChatAction("provider", what, name if what == "set" else "")


def _split(text: str) -> tuple[str, str]:
    found = _WORD.fullmatch(text)
    assert found is not None  # noqa: S101  the pattern matches every text
    return found[1], found[2]


def _invalid(why: str) -> UsageError:
    return UsageError(f"{why}\n\n{USAGE}")
