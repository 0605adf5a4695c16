"""`acpterm logs`: what a terminal has printed."""

import click

from acpterm.cli.parts.asking import ask
from acpterm.cli.parts.options import at_daemon
from acpterm.cli.parts.terminal_name import terminal_argument
from acpterm.client.person.front import Front
from acpterm.client.person.reading.printed import print_raw, print_text


@click.command("logs")
@terminal_argument()
@click.option("-f", "--follow", is_flag=True, help="Go on until the program has ended.")
@click.option(
    "-n", "--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines, at first."
)
@click.option(
    "--since",
    type=click.IntRange(min=0),
    metavar="POSITION",
    help="What came after so many bytes of its output.",
)
@click.option("--raw", is_flag=True, help="The bytes as they came: escape sequences and all.")
@at_daemon
def command(
    terminal: str,
    *,
    follow: bool,
    tail: int | None,
    since: int | None,
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

    It goes on where it was when the daemon's worker is replaced.

    Exit status: 0, however the program ended; 1 if there is no such terminal; 130 after Ctrl-C.
    """

    async def print_it(front: Front) -> None:
        printing = print_raw if raw else print_text
        await printing(front, terminal, stay=follow, since=since, tail=tail)

    ask(config, socket, print_it)
