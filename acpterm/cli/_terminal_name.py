"""The argument that names a terminal, which a shell completes from what the daemon has.

Every command that takes terminals has it from here. What it means the daemon says: an id, the
beginning of one, a name, or ``@last``.
"""

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from acpterm.client.user.completion import described, short_ids, terminals
from acpterm.config import ConfigError, load, user_socket

F = TypeVar("F", bound=Callable[..., Any])

# What every shell takes as it is, in the middle of a word too. A terminal whose name has more in it
# is offered by its id.
_SAFE: Final = re.compile(r"[A-Za-z0-9_.+/-]+", re.ASCII)
LAST: Final = "@last"


class TerminalName(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """What names a terminal."""

    name = "terminal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take it, unless no daemon can be told of it."""
        said = str(value)
        try:
            said.encode()
        except UnicodeEncodeError:
            self.fail(f"{said!r} names no terminal: it is not UTF-8", param, ctx)
        if not said:
            self.fail("an empty word names no terminal", param, ctx)
        return said

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Give the names and ids that begin so, of the daemon that runs; says nothing if none."""
        if incomplete.startswith("@"):
            return [CompletionItem(LAST)] if LAST.startswith(incomplete) else []
        given = ctx.params.get(param.name or "") or ()
        taken = {given} if isinstance(given, str) else set(given)
        return [item for item in _known(ctx, incomplete) if item.value not in taken]


def _known(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    try:
        chosen = load(ctx.params.get("config"), flags={"socket": ctx.params.get("socket")})
        path = user_socket(chosen)
    except (ConfigError, OSError):
        return []
    found = terminals(path)
    short = short_ids([one["terminalId"] for one in found])
    items = []
    for one in found:
        whole = one["terminalId"]
        name = one.get("name")
        words = [whole if incomplete.startswith("term_") else short[whole]]
        if name and _SAFE.fullmatch(name):
            words.insert(0, name)
        # One word for each terminal; the whole id if so much of it was typed already.
        words += [whole.removeprefix("term_")]
        if word := next((word for word in words if word.startswith(incomplete)), None):
            items.append(CompletionItem(word, help=described(one)))
    return items


def terminal_argument(*, many: bool = False, required: bool = True) -> Callable[[F], F]:
    """Add the argument TERMINAL to a command, whose function is given it as `terminal`.

    `many` are a tuple, as `terminals`. One that is not `required` and left out is None.
    """
    if many:
        return click.argument(
            "terminals", metavar="TERMINAL…", nargs=-1, required=required, type=TerminalName()
        )
    metavar = "TERMINAL" if required else "[TERMINAL]"
    return click.argument("terminal", metavar=metavar, required=required, type=TerminalName())
