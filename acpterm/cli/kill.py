"""`acpterm kill`: ends the programs of terminals."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import click

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import TerminalInfo, UserSignalRequest, UserTerminalRequest
from acpterm.cli._daemon import call, end
from acpterm.cli._options import at_daemon
from acpterm.cli._output import echo
from acpterm.cli._params import terminal_argument
from acpterm.client.sanitize import one_line
from acpterm.client.user.blocking_client import BlockingClient, Slow
from acpterm.client.user.output.print import note
from acpterm.client.user.requests import W
from acpterm.client.user.words import ended
from acpterm.jsonrpc import RpcError
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
@click.option("--no-wait", is_flag=True, help="Do not wait for the programs to exit.")
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
    names = list(dict.fromkeys(terminals))
    end(
        call(
            config,
            socket,
            lambda client: (
                _signal(client, names, signal_name)
                if signal_name is not None
                else _kill(client, names, wait=not no_wait)
            ),
        )
    )


def _signal(client: BlockingClient, names: Sequence[str], signal_name: str) -> list[str]:
    requests = [UserSignalRequest(name, signal_name) for name in names]
    answers = dict(client.call_each("terminal/signal", requests, Empty))
    return [answer.message for _, answer in sorted(answers.items()) if isinstance(answer, RpcError)]


def _kill(client: BlockingClient, names: Sequence[str], *, wait: bool) -> list[str]:
    """Kill each terminal and print how it ended; return the messages of those that fail."""
    failed: dict[str, str] = {}

    def ask(method: str, terminals: Mapping[str, str], into: type[W]) -> Iterator[tuple[str, W]]:
        """Yield the name and the answer of each terminal, of those by name; note failures."""
        order = list(terminals)
        requests = [UserTerminalRequest(terminals[name]) for name in order]
        slow = Slow(_SLOW_S, lambda at: _report_slow(order[at])) if method == "wait" else None
        for at, answer in client.call_each(f"terminal/{method}", requests, into, slow):
            if isinstance(answer, RpcError):
                failed[order[at]] = answer.message
            else:
                yield order[at], answer

    before = dict(ask("get", {name: name for name in names}, TerminalInfo))
    ids = {name: info.terminal_id for name, info in before.items()}
    killed = dict(ask("kill", ids, Empty))
    if wait:
        for name in killed:
            if (status := before[name].exit_status) is not None:
                _print_end(name, f"had {ended(status)} already")
        running = {name: ids[name] for name in killed if before[name].exit_status is None}
        for name, info in ask("wait", running, TerminalInfo):
            _print_end(name, "ended" if info.exit_status is None else ended(info.exit_status))
    return [failed[name] for name in names if name in failed]


def _print_end(name: str, how: str) -> None:
    with suppress(BrokenPipeError):  # the others are to be killed all the same
        echo(f"{one_line(name)}: {how}")


def _report_slow(name: str) -> None:
    note(f"acpterm: {one_line(name)} is still ending: waiting (Ctrl-C stops waiting)")
