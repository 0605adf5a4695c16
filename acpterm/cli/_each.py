"""How a command does the same to several terminals: to all at once, and fails if one fails."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import click
import trio

from acpterm.acp import Wire
from acpterm.cli._daemon import call
from acpterm.client.sanitize import one_line
from acpterm.client.user.client import UserClient
from acpterm.jsonrpc import RpcError

# Characters of a message, which may quote what was asked for.
_MESSAGE_MAX: Final = 2000


class _Any(Wire):
    """An answer of which nothing matters."""


def do_to_each(
    config: str | None, socket: str | None, method: str, terminals: Iterable[str]
) -> None:
    """Ask the daemon for something about each; exits with 1 after saying which could not be."""

    async def work(client: UserClient) -> list[str]:
        return await failures(client, method, terminals)

    end(call(config, socket, work))


async def failures(client: UserClient, method: str, terminals: Iterable[str]) -> list[str]:
    """Ask the daemon for something about each terminal; return what went wrong, in their order."""

    async def one(client: UserClient, name: str) -> None:
        await client.terminal_request(method, name, _Any)

    return await for_each(client, terminals, one)


async def for_each(
    client: UserClient, terminals: Iterable[str], do: Callable[[UserClient, str], Awaitable[object]]
) -> list[str]:
    """Do something to each terminal, to all at once; return what went wrong, in their order."""
    names = list(dict.fromkeys(terminals))
    wrong: dict[str, str] = {}

    async def one(name: str) -> None:
        try:
            await do(client, name)
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
        click.echo(f"acpterm: {one_line(one, _MESSAGE_MAX)}", err=True)
        failed = True
    if failed:
        raise SystemExit(status)
