"""`acpterm kill`: ends the programs of terminals."""

import signal
from contextlib import suppress
from typing import Any, Final

import click
import trio

from acpterm.acp import Empty
from acpterm.acp.user_api import TerminalInfo, UserSignalRequest
from acpterm.cli._daemon import call
from acpterm.cli._each import end, for_each
from acpterm.cli._options import at_daemon
from acpterm.cli._output import echo
from acpterm.cli._terminal_name import terminal_argument
from acpterm.client.sanitize import one_line
from acpterm.client.user.client import UserClient
from acpterm.client.user.output.stdout import note
from acpterm.client.user.words import ended
from acpterm.pty.signals import name_of, number_of

_NUMBERS: Final = frozenset(str(int(number)) for number in signal.valid_signals())
# Seconds until it is reported that a program has not ended yet.
_SLOW_S: Final = 4.0


class _Signal(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    name = "signal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the full name of a signal that is given by its name or number."""
        text = str(value)
        try:
            return name_of(int(text) if text in _NUMBERS else number_of(text))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command("kill")
@terminal_argument(many=True)
@click.option("--no-wait", is_flag=True, help="Do not wait until the programs have ended.")
@click.option(
    "-s",
    "--signal",
    "signal_name",
    type=_Signal(),
    metavar="SIGNAL",
    help="Send only this signal, such as INT or 2, to what is in the foreground.",
)
@at_daemon
def command(
    *,
    terminals: tuple[str, ...],
    no_wait: bool,
    signal_name: str | None,
    config: str | None,
    socket: str | None,
) -> None:
    """End the program of each TERMINAL, and all that it has started.

    They get SIGTERM, and SIGKILL if they are still there after a moment (kill_grace). Waits until
    the program has ended, and prints how; until then acpterm ls shows it as ending. What it has
    printed can still be read; acpterm rm removes that, too. A program that has ended already is no
    failure.

    With --signal nothing else is sent, and nothing is waited for: a program may go on.

    Exit status: 0 done, 1 for one of them it could not be done, 2 the command line is wrong.
    """

    async def kill(client: UserClient, name: str) -> None:
        if signal_name is not None:
            await client.call("terminal/signal", UserSignalRequest(name, signal_name), Empty)
            return
        before = await client.terminal_request("get", name, TerminalInfo)
        await client.terminal_request("kill", before.terminal_id, Empty)
        if not no_wait:
            how = await _how_it_ended(client, name, before)
            with suppress(BrokenPipeError):  # the others are to be killed all the same
                echo(f"{one_line(name)}: {how}")

    async def work(client: UserClient) -> list[str]:
        return await for_each(client, terminals, kill)

    end(call(config, socket, work))


async def _how_it_ended(client: UserClient, name: str, before: TerminalInfo) -> str:
    if before.exit_status is not None:
        return f"had {ended(before.exit_status)} already"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_report_slow, name)
        info = await client.terminal_request("wait", before.terminal_id, TerminalInfo)
        nursery.cancel_scope.cancel()
    return "ended" if info.exit_status is None else ended(info.exit_status)


async def _report_slow(name: str) -> None:
    await trio.sleep(_SLOW_S)
    await note(f"acpterm: {one_line(name)} is still ending: waiting (Ctrl-C stops waiting)")
