"""`acpterm screen`: print or draw the current screen of a terminal."""

import io
import os
from collections import deque
from collections.abc import Sequence

import click
import msgspec

from acpterm.acp.user_api import ScreenResponse, TerminalInfo
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import fail
from acpterm.cli._output import echo_once, is_colour_wanted, json_text
from acpterm.cli._params import terminal_argument
from acpterm.commands.blocking_client import BlockingClient
from acpterm.commands.export import picture
from acpterm.commands.export.files import write_to
from acpterm.commands.output.history import read_history
from acpterm.runtime.sanitize import escape_invisible_text


def _rows(text: str) -> int | None:
    """Return a number of rows; None for ``-``, which means all."""
    if text == "-":
        return None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is not a number of rows: say one, or - for all")
    return int(text)


@click.command("screen")
@terminal_argument()
@click.option(
    "-S",
    "--history",
    metavar="N",
    type=_rows,
    default="0",
    help="Print N rows above the screen as well; - is all that are retained.",
)
@click.option("--svg", metavar="FILE", help="Write a picture of the screen to FILE; - is stdout.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the cursor and size.")
@at_daemon
def command(
    terminal: str, *, history: int | None, svg: str | None, as_json: bool, daemon: ChosenDaemon
) -> None:
    """Print the current screen of TERMINAL.

    On a terminal the screen is printed in colour; elsewhere, or if NO_COLOR is set, as plain text.
    After the program has ended, its last screen is printed. On a terminal, characters that reorder
    or hide text are printed as escapes. In JSON, `rows` contain colours as escape sequences, and
    `text` contains none.

    Exit status: 0; 1 if there is no such terminal or FILE cannot be written.
    """
    if svg is not None and as_json:
        fail("say --svg or --json, not both", 2)

    def read(client: BlockingClient) -> tuple[ScreenResponse, TerminalInfo, Sequence[str]]:
        screen = client.terminal_request("screen", terminal, ScreenResponse)
        info = client.terminal_request("get", terminal, TerminalInfo)
        above = () if history == 0 else read_history(client, terminal, screen).rows
        return screen, info, deque(above, maxlen=history)

    screen, info, above = daemon.call(read)
    if svg is not None:
        drawn = picture.svg(screen.rows, screen.cols, picture.title_of(screen, info.command))
        try:
            write_to(svg, io.BytesIO(drawn.encode()))
        except OSError as error:
            fail(f"{'stdout' if svg == '-' else svg}: {error.strerror}")
    elif as_json:
        text = [picture.plain(row) for row in screen.rows]
        found = {**msgspec.to_builtins(screen), "text": text}
        if history != 0:
            found["history"] = list(above)
        echo_once(json_text(found))
    else:
        rows = [*above, *screen.rows]
        if not is_colour_wanted():
            rows = [picture.plain(row) for row in rows]
        if os.isatty(1):
            rows = [picture.text_mapped(row, escape_invisible_text) for row in rows]
        while rows and not rows[-1]:
            rows.pop()
        write_to("-", io.BytesIO("".join(f"{row}\n" for row in rows).encode()))
