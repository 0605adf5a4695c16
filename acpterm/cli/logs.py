"""`acpterm logs`: print the output of a terminal."""

from functools import partial

import click

from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import fail
from acpterm.cli._params import as_since, terminal_argument
from acpterm.commands.blocking_client import BlockingClient
from acpterm.commands.output.read import Since


@click.command("logs")
@terminal_argument()
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the program exits.")
@click.option(
    "-n", "--tail", type=click.IntRange(min=0), metavar="N", help="Start with the last N lines."
)
@click.option(
    "--since",
    type=as_since,
    metavar="TIME|@POSITION",
    help="Print only output since: 5m, 10:30, 2026-01-31T10:30, or position @12345.",
)
@click.option("--timestamps", is_flag=True, help="Start each line with its time.")
@click.option("--colour", "--color", is_flag=True, help="Keep the output's colours.")
@click.option("--raw", is_flag=True, help="Print the raw bytes, with escape sequences.")
@at_daemon
def command(
    terminal: str,
    *,
    follow: bool,
    tail: int | None,
    since: Since | None,
    timestamps: bool,
    colour: bool,
    raw: bool,
    daemon: ChosenDaemon,
) -> None:
    """Print the output of TERMINAL, as an agent reads it.

    The output is text without escape sequences and without what was overwritten, so a progress bar
    is one line. With -f on a terminal an incomplete line is shown as it grows; otherwise it is
    printed at the end. Missing output is reported on stderr: a limited amount is retained, and what
    cannot be printed as fast as it arrives is skipped. On a terminal, characters that reorder or
    hide text are printed as escapes.

    TIME is a span before now, such as 90s, 5m, 1h30m or 2d, or a point in time; 10:30 is the last
    10:30. A position is a number of bytes of output, as in acpterm inspect. With --timestamps each
    line starts with the time at which it was completed, accurate to 0.01 seconds, or less if there
    is much output. --timestamps omits text whose time is unknown: its raw bytes are not retained,
    or it is older than the daemon's worker. --since TIME omits the latter, too.

    Exit status: 0, whatever the program's exit status; 1 if there is no such terminal; 2 if the
    command line is wrong; 130 after Ctrl-C.
    """
    if raw + timestamps + colour > 1:
        fail("say only one of --raw, --timestamps and --colour", 2)

    from acpterm.commands.output.show import print_raw, print_stamped, print_text  # noqa: PLC0415  completion does not need them

    def print_output(client: BlockingClient) -> None:
        text = partial(print_text, colour=colour)
        printer = print_raw if raw else print_stamped if timestamps else text
        printer(client, terminal, stay=follow, since=since or Since(), tail=tail)

    daemon.call(print_output)
