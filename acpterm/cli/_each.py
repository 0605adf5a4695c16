"""How a command does the same to several terminals: to all at once, and fails if one fails."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import click
import trio

from acpterm.acp import Wire
from acpterm.cli._daemon import ask
from acpterm.client.sanitize import in_a_line
from acpterm.client.user.client import Front
from acpterm.jsonrpc import RpcError

# Characters of a message, which may quote what was asked for.
_MOST: Final = 2000


class _Any(Wire):
    """An answer of which nothing matters."""


def do_to_each(
    config: str | None, socket: str | None, method: str, terminals: Iterable[str]
) -> None:
    """Ask the daemon for something about each; exits with 1 after saying which could not be."""

    async def work(front: Front) -> list[str]:
        return await failures(front, method, terminals)

    end(ask(config, socket, work))


async def failures(front: Front, method: str, terminals: Iterable[str]) -> list[str]:
    """Ask the daemon for something about each terminal; return what went wrong, in their order."""

    async def one(front: Front, name: str) -> None:
        await front.about(method, name, _Any)

    return await for_each(front, terminals, one)


async def for_each(
    front: Front, terminals: Iterable[str], do: Callable[[Front, str], Awaitable[object]]
) -> list[str]:
    """Do something to each terminal, to all at once; return what went wrong, in their order."""
    names = list(dict.fromkeys(terminals))
    wrong: dict[str, str] = {}

    async def one(name: str) -> None:
        try:
            await do(front, name)
        except RpcError as error:
            wrong[name] = error.message

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(one, name)
    return [wrong[name] for name in names if name in wrong]


def end(wrong: Iterable[str], status: int = 1) -> None:
    """Say what went wrong; exits if anything did."""
    failed = False
    for one in wrong:
        click.echo(f"acpterm: {in_a_line(one, _MOST)}", err=True)
        failed = True
    if failed:
        raise SystemExit(status)
