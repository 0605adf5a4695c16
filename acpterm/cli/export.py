"""`acpterm export`: a terminal as a file."""

import tempfile
from typing import BinaryIO

import click

from acpterm.acp.person import ScreenResponse, TerminalInfo
from acpterm.cli.parts.asking import ask
from acpterm.cli.parts.options import at_daemon, fail
from acpterm.cli.parts.terminal_name import terminal_argument
from acpterm.client.person.front import Front
from acpterm.client.person.reading.text_follower import UNKNOWN, following_text
from acpterm.client.person.recording import picture
from acpterm.client.person.recording.exporting import write_cast
from acpterm.client.person.recording.files import write_to


@click.command("export")
@terminal_argument()
@click.option(
    "--format",
    "form",
    type=click.Choice(["asciicast", "text", "html", "svg"]),
    default="asciicast",
    show_default=True,
    help="As what.",
)
@click.option("-o", "--output", metavar="FILE", default="-", help="Where to, if not stdout.")
@at_daemon
def command(
    terminal: str, *, form: str, output: str, config: str | None, socket: str | None
) -> None:
    """Write TERMINAL to a file: a recording, text, or a page or a picture of its screen.

    An asciicast has all that is kept, with its times: asciinema and acpterm replay play it. If the
    terminal was recorded (the setting record), it is the recording that is written, if that has
    more, as it is: lines of it that cannot be read are told of. Text is that of acpterm logs; html
    and svg show what the screen shows now.

    FILE is for you alone, and takes the place of one of that name only when it is whole; a pipe or
    a device is written to.

    Exit status: 0; 1 if there is no such terminal or FILE cannot be written.
    """
    try:
        # What is made is whole before the first byte of it is written.
        with tempfile.TemporaryFile() as made:
            lacks = ask(config, socket, lambda front: _make(front, terminal, form, made))
            if lacks:
                click.echo(f"acpterm: {lacks}", err=True)
            write_to(output, made)
    except OSError as error:
        fail(f"{'stdout' if output == '-' else output}: {error.strerror}")


async def _make(front: Front, terminal: str, form: str, file: BinaryIO) -> str | None:
    """Write it to `file`; say what it lacks, if anything."""
    if form == "asciicast":
        report = await write_cast(front, terminal, file)
        return report.said("of the recording cannot be read") if report.unread else None
    if form == "text":
        lost = await _text(front, terminal, file)
        return _beginning(lost) if lost else None
    screen = await front.about("screen", terminal, ScreenResponse)
    info = await front.about("get", terminal, TerminalInfo)
    file.write(picture.drawn(screen, info.command, as_page=form == "html").encode())
    return None


def _beginning(lost: int) -> str:
    return f"the beginning is missing{'' if lost == UNKNOWN else f': {lost} bytes'}"


async def _text(front: Front, terminal: str, file: BinaryIO) -> int:
    """Write its text; tell how many bytes are missing at the beginning, which may be `UNKNOWN`."""
    missing_first, last = 0, ""
    async with following_text(front, terminal, stay=False) as text:
        async for over, line, lost in text:
            missing_first = missing_first or lost
            file.write(over.encode())
            last = line
    file.write(f"{last}\n".encode() if last else b"")
    return missing_first
