"""`acpterm export`: a terminal as a file."""

import os
import tempfile
from collections.abc import Callable
from typing import BinaryIO, Final

import click

from acpterm.acp.user_api import ScreenResponse, TerminalInfo
from acpterm.cli._daemon import call
from acpterm.cli._options import at_daemon, fail
from acpterm.cli._params import terminal_argument
from acpterm.client.sanitize import escape_invisible_text
from acpterm.client.user.blocking_client import BlockingClient
from acpterm.client.user.export import picture
from acpterm.client.user.export.files import write_to
from acpterm.client.user.output.text_follow import UNKNOWN, follow_text

_ENDINGS: Final = {
    ".cast": "asciicast",
    ".txt": "text",
    ".log": "text",
    ".html": "html",
    ".htm": "html",
    ".svg": "svg",
}


@click.command("export")
@terminal_argument()
@click.option(
    "--format",
    "form",
    type=click.Choice(["asciicast", "text", "html", "svg"]),
    help="As what; by default what FILE's name ends with, or else an asciicast.",
)
@click.option("-o", "--output", metavar="FILE", default="-", help="Where to, if not stdout.")
@at_daemon
def command(
    terminal: str, *, form: str | None, output: str, config: str | None, socket: str | None
) -> None:
    """Write TERMINAL to a file: a recording, text, or a page or a picture of its screen.

    An asciicast has all that is kept, with its times: asciinema and acpterm replay play it. If the
    terminal was recorded (the setting record), it is the recording that is written, if that has
    more, as it is: lines of it that cannot be read are told of. Text is that of acpterm logs; html
    and svg show what the screen shows now.

    Without --format, .cast is an asciicast, .txt and .log are text, .html and .htm are html, and
    .svg is svg; FILE with another ending needs --format.

    FILE is for you alone, and takes the place of one of that name only when it is whole; a pipe or
    a device is written to. Text that is printed in a window has escapes in the place of characters
    that reorder or hide text.

    Exit status: 0; 1 if there is no such terminal or FILE cannot be written; 2 for a FILE whose
    ending says no format.
    """
    if form is None:
        form = _format_of(output)
    try:
        # What is made is whole before the first byte of it is written.
        with tempfile.TemporaryFile() as made:
            is_shown = output == "-" and os.isatty(1)
            if form == "asciicast":
                lacks = _write_cast(config, socket, terminal, made)
            else:
                lacks = call(
                    config,
                    socket,
                    lambda client: _make(client, terminal, form, made, is_shown=is_shown),
                )
            if lacks:
                click.echo(f"acpterm: {lacks}", err=True)
            write_to(output, made)
    except OSError as error:
        fail(f"{'stdout' if output == '-' else output}: {error.strerror}")


def _format_of(output: str) -> str:
    """Return the format that a file's name ends with; fail if it ends with another."""
    ending = os.path.splitext(output)[1].lower()
    # What is no regular file has no format in its name.
    if output == "-" or not ending or (os.path.exists(output) and not os.path.isfile(output)):
        return "asciicast"
    if ending not in _ENDINGS:
        known = ", ".join(_ENDINGS)
        fail(f"{output}: {ending} is none of {known}: say --format", 2)
    return _ENDINGS[ending]


def _write_cast(
    config: str | None, socket: str | None, terminal: str, file: BinaryIO
) -> str | None:
    """Write an asciicast to `file`; return what it lacks, if anything."""
    # They import trio, which the other formats do without.
    from acpterm.cli._async import call_async  # noqa: PLC0415
    from acpterm.client.user.export.export import write_cast  # noqa: PLC0415

    report = call_async(config, socket, lambda client: write_cast(client, terminal, file))
    return report.summary("of the recording cannot be read") if report.unread else None


def _make(
    client: BlockingClient, terminal: str, form: str, file: BinaryIO, *, is_shown: bool
) -> str | None:
    """Write it to `file`; return what it lacks, if anything. `is_shown`: in the user's window."""
    if form == "text":
        lost = _text(client, terminal, file, escape_invisible_text if is_shown else str)
        return _beginning(lost) if lost else None
    screen = client.terminal_request("screen", terminal, ScreenResponse)
    info = client.terminal_request("get", terminal, TerminalInfo)
    file.write(picture.render(screen, info.command, as_page=form == "html").encode())
    return None


def _beginning(lost: int) -> str:
    return f"the beginning is missing{'' if lost == UNKNOWN else f': {lost} bytes'}"


def _text(
    client: BlockingClient, terminal: str, file: BinaryIO, printed: Callable[[str], str]
) -> int:
    """Write its text, `printed`; return the bytes missing at the beginning, or `UNKNOWN`."""
    missing_first, last = 0, ""
    for over, line, lost in follow_text(client, terminal, stay=False):
        missing_first = missing_first or lost
        file.write(printed(over).encode())
        last = printed(line)
    file.write(f"{last}\n".encode() if last else b"")
    return missing_first
