"""`acpterm logs`: what a terminal has printed."""

import click

from acpterm.cli._daemon import call
from acpterm.cli._options import at_daemon, fail
from acpterm.cli._params import SinceParam, terminal_argument
from acpterm.client.user.blocking_client import BlockingClient
from acpterm.client.user.output.read import Since


@click.command("logs")
@terminal_argument()
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the program exits.")
@click.option(
    "-n",
    "--tail",
    type=click.IntRange(min=0),
    metavar="N",
    help="Start with the last N lines only.",
)
@click.option(
    "--since",
    type=SinceParam(),
    metavar="TIME|@POSITION",
    help="Only output since then: 5m, 10:30, 2026-01-31T10:30, or the position @12345.",
)
@click.option("--timestamps", is_flag=True, help="Start each line with its time.")
@click.option("--raw", is_flag=True, help="Print the raw bytes, with escape sequences.")
@at_daemon
def command(
    terminal: str,
    *,
    follow: bool,
    tail: int | None,
    since: Since | None,
    timestamps: bool,
    raw: bool,
    config: str | None,
    socket: str | None,
) -> None:
    """Print what TERMINAL has printed, as an agent reads it.

    That is text, without escape sequences; what was written over is not in it, so a progress bar is
    one line. A line that is not over is printed at the end, but followed (-f) in a window it is
    seen as it grows; one that is longer than the window cannot be taken back from it, and is
    printed again if it was written over. Where something is gone it says so on stderr: much is
    kept, not all of it; and if it cannot be printed as fast as it comes, some of it is left out.
    In a window, characters that reorder or hide text are printed as escapes.

    TIME is how long ago, such as 90s, 5m, 1h30m or 2d, or when: 10:30 is today, or yesterday if it
    is later now. A position counts bytes of the output, as acpterm inspect shows them. With
    --timestamps a line has the time at which it was over, to some hundredth of a second; of much
    output the older times are coarser. Text that is older than the bytes that are kept has no
    time, and is left out; so has output from before the daemon's worker was replaced, which
    --since TIME leaves out as well.

    It goes on where it was when the daemon's worker is replaced.

    Exit status: 0, however the program ended; 1 if there is no such terminal; 2 the command line is
    wrong; 130 after Ctrl-C.
    """
    if raw and timestamps:
        fail("say --raw or --timestamps, not both", 2)

    from acpterm.client.user.output.show import (  # noqa: PLC0415  completion does without them
        print_raw,
        print_stamped,
        print_text,
    )

    def print_it(client: BlockingClient) -> None:
        printing = print_raw if raw else print_stamped if timestamps else print_text
        printing(client, terminal, stay=follow, since=since or Since(), tail=tail)

    call(config, socket, print_it)
