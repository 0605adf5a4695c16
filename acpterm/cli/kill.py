"""`acpterm kill`: kill the programs of terminals.

In the daemon, `host.verbs` handles the requests.
"""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import click

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import TerminalInfo, UserSignalRequest, UserTerminalRequest
from acpterm.cli._daemon import ChosenDaemon, at_daemon, end
from acpterm.cli._output import echo
from acpterm.cli._params import terminal_argument
from acpterm.commands.blocking_client import BlockingClient, Slow
from acpterm.commands.format import background, background_line, ended, reason
from acpterm.commands.output.blocking_stdout import note
from acpterm.jsonrpc import RpcError
from acpterm.link.session import W
from acpterm.pty.signals import name_of, number_of
from acpterm.runtime.sanitize import one_line

_NUMBERS: Final = frozenset(str(int(number)) for number in signal.valid_signals())
# Seconds after which a program that has not ended yet is reported.
_SLOW_S: Final = 4.0


def _signal_name(text: str) -> str:
    try:
        return name_of(int(text) if text in _NUMBERS else number_of(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("kill")
@terminal_argument(many=True, running=True)
@click.option("--no-wait", is_flag=True, help="Do not wait for the programs to exit.")
@click.option(
    "-s",
    "--signal",
    "signal_name",
    type=_signal_name,
    metavar="SIGNAL",
    help="Send only this signal, such as INT or 2, to the foreground processes.",
)
@at_daemon
def command(
    *, terminals: tuple[str, ...], no_wait: bool, signal_name: str | None, daemon: ChosenDaemon
) -> None:
    """Kill the program of each TERMINAL, and all processes that it has started or left running.

    The processes get SIGTERM, and SIGKILL if they still run after kill_grace seconds. An
    interactive shell, which ignores SIGTERM, gets SIGHUP once only it is left. The command waits
    until the program has ended and prints how it ended; until then acpterm ls shows the terminal as
    ending. The output can still be read; acpterm rm removes the output too. It is not an error if a
    program has already ended.

    With --signal only that signal is sent, and the command does not wait: the program may continue.

    Exit status: 0 on success, 1 if a program could not be killed, 2 if the command line is wrong.
    """
    names = list(dict.fromkeys(terminals))
    end(
        daemon.call(
            lambda client: (
                _signal(client, names, signal_name)
                if signal_name is not None
                else _kill(client, names, wait=not no_wait)
            )
        )
    )


def _signal(client: BlockingClient, names: Sequence[str], signal_name: str) -> list[str]:
    requests = [UserSignalRequest(name, signal_name) for name in names]
    responses = dict(client.call_each("terminal/signal", requests, Empty))
    return [one.message for _, one in sorted(responses.items()) if isinstance(one, RpcError)]


def _kill(client: BlockingClient, names: Sequence[str], *, wait: bool) -> list[str]:
    """Kill each terminal; if `wait`, print how its program ended. Return the error messages."""
    failed: dict[str, str] = {}

    def request(
        method: str, terminals: Mapping[str, str], into: type[W]
    ) -> Iterator[tuple[str, W]]:
        """Yield the name of each terminal, and the response unless that is an error."""
        order = list(terminals)
        requests = [UserTerminalRequest(terminals[name]) for name in order]
        slow = Slow(_SLOW_S, lambda index: _report_slow(order[index])) if method == "wait" else None
        for index, response in client.call_each(f"terminal/{method}", requests, into, slow):
            if isinstance(response, RpcError):
                failed[order[index]] = response.message
            else:
                yield order[index], response

    before = dict(request("get", {name: name for name in names}, TerminalInfo))
    ids = {name: info.terminal_id for name, info in before.items()}
    killed = dict(request("kill", ids, Empty))
    if wait:
        for name in killed:
            if (status := before[name].exit_status) is not None:
                over = f"had {ended(status)}{reason(status)} already"
                left = ", ".join(map(background_line, background(before[name])))
                _print_end(name, f"{over}; ended {left}" if left else over)
        running = {name: ids[name] for name in killed if before[name].exit_status is None}
        for name, info in request("wait", running, TerminalInfo):
            status = info.exit_status
            _print_end(name, "ended" if status is None else ended(status) + reason(status))
    return [failed[name] for name in names if name in failed]


def _print_end(name: str, how: str) -> None:
    with suppress(BrokenPipeError):  # continue with the other terminals
        echo(f"{one_line(name)}: {how}")


def _report_slow(name: str) -> None:
    note(f"acpterm: {one_line(name)} is still ending: waiting (Ctrl-C stops waiting)")
