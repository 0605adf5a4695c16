"""`acpterm screen`: print or draw the current screen of a terminal."""

import io
import os
from typing import Any

import click
import msgspec

from acpterm.acp.user_api import HISTORY_ROWS_MAX, ScreenRequest, ScreenResponse, TerminalInfo
from acpterm.cli._daemon import call
from acpterm.cli._options import at_daemon, fail
from acpterm.cli._output import echo_once, is_colour_wanted, json_text
from acpterm.cli._params import terminal_argument
from acpterm.client.sanitize import escape_invisible_text
from acpterm.client.user.blocking_client import BlockingClient
from acpterm.client.user.export import picture
from acpterm.client.user.export.files import write_to


class HistoryRows(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A number of rows, or ``-`` for all."""

    name = "rows"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of rows; fail if `value` is none."""
        if value == "-":
            return HISTORY_ROWS_MAX
        if not str(value).isdecimal():
            self.fail(f"{value!r} is not a number of rows: say one, or - for all", param, ctx)
        return min(int(value), HISTORY_ROWS_MAX)


@click.command("screen")
@terminal_argument()
@click.option(
    "-S",
    "--history",
    metavar="N",
    type=HistoryRows(),
    default=0,
    help="Print N rows above the screen as well; - is all that are retained, at most 10,000.",
)
@click.option("--svg", metavar="FILE", help="Write a picture of the screen to FILE; - is stdout.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the cursor and size.")
@at_daemon
def command(
    terminal: str,
    *,
    history: int,
    svg: str | None,
    as_json: bool,
    config: str | None,
    socket: str | None,
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

    def read(client: BlockingClient) -> tuple[ScreenResponse, TerminalInfo]:
        screen = client.call("terminal/screen", ScreenRequest(terminal, history), ScreenResponse)
        return screen, client.terminal_request("get", terminal, TerminalInfo)

    screen, info = call(config, socket, read)
    if svg is not None:
        drawn = picture.render(screen, info.command)
        try:
            write_to(svg, io.BytesIO(drawn.encode()))
        except OSError as error:
            fail(f"{'stdout' if svg == '-' else svg}: {error.strerror}")
    elif as_json:
        text = [picture.plain(row) for row in screen.rows]
        echo_once(json_text({**msgspec.to_builtins(screen), "text": text}))
    else:
        rows = [*(screen.history or ()), *screen.rows]
        if not is_colour_wanted():
            rows = [picture.plain(row) for row in rows]
        if os.isatty(1):
            rows = [picture.text_mapped(row, escape_invisible_text) for row in rows]
        while rows and not rows[-1]:
            rows.pop()
        write_to("-", io.BytesIO("".join(f"{row}\n" for row in rows).encode()))
