"""Parses what the user types after `/terminal` into an action."""

import re
from typing import Final, NamedTuple, TypeAlias

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


class ListTerminals(NamedTuple):
    """List the terminals that are not released, also those whose programs have exited."""


class Start(NamedTuple):
    """Start a terminal. `command` is a program with `args`, or shell text if `args` is None."""

    command: str
    args: list[str] | None = None


class Send(NamedTuple):
    """Type `text` into a terminal, then Enter; or press a key, if `text` is the name of a key."""

    terminal: str
    text: str


class Output(NamedTuple):
    """Show all retained output of a terminal."""

    terminal: str


class Stop(NamedTuple):
    """End a terminal's program, and remove the terminal if the user owns it."""

    terminal: str


class ProviderGet(NamedTuple):
    """Show the selected provider."""


class ProviderSelect(NamedTuple):
    """Let the user select a provider from a list."""


class ProviderSet(NamedTuple):
    """Select the provider `name`."""

    name: str


class ProviderList(NamedTuple):
    """List the providers."""


TerminalAction: TypeAlias = ListTerminals | Start | Send | Output | Stop
"""An action that consists of requests on the user's socket."""
Action: TypeAlias = TerminalAction | ProviderGet | ProviderSelect | ProviderSet | ProviderList


def parse(line: str) -> Action:
    """Parse the text after `/terminal`. Raises `UsageError`."""
    action, rest = _split(line)
    argument, text = _split(rest)
    match action:
        case "list":
            return ListTerminals()
        case "start" if rest.strip():
            return Start(rest.strip())
        case "send" if argument:
            return Send(argument, text.rstrip("\r\n"))
        case "output" if argument:
            return Output(argument)
        case "stop" if argument:
            return Stop(argument)
        case "provider":
            return _parse_provider(argument, text.strip())
        case "start":
            raise _invalid("/terminal start needs a command")
        case "send" | "output" | "stop":
            raise _invalid(f"/terminal {action} needs a session id")
        case "" | "help":
            raise UsageError(USAGE)
        case _:
            raise _invalid(f"there is no action {action!r}")


def _parse_provider(subaction: str, name: str) -> Action:
    match subaction:
        case "get":
            return ProviderGet()
        case "select":
            return ProviderSelect()
        case "list":
            return ProviderList()
        case "set" if name:
            return ProviderSet(name)
        case "set":
            raise _invalid("/terminal provider set needs the name of a provider")
        case "":
            raise _invalid("/terminal provider needs one of get, select, set and list")
        case _:
            raise _invalid(f"there is no action 'provider {subaction}'")


def _split(text: str) -> tuple[str, str]:
    found = _WORD.fullmatch(text)
    assert found is not None  # noqa: S101  the pattern matches every text
    return found[1], found[2]


def _invalid(why: str) -> UsageError:
    return UsageError(f"{why}\n\n{USAGE}")
