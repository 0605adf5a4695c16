"""`acpterm export`: write a terminal's output or its current screen to a file."""

import os
import tempfile
from collections.abc import Callable
from itertools import chain
from typing import BinaryIO, Final

import click

from acpterm.acp.user_api import ScreenResponse, TerminalInfo
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import fail
from acpterm.cli._params import terminal_argument
from acpterm.commands.blocking_client import BlockingClient
from acpterm.commands.export import picture
from acpterm.commands.export.files import write_to
from acpterm.commands.output.history import read_history
from acpterm.commands.output.text_follow import UNKNOWN, follow_text
from acpterm.runtime.sanitize import escape_invisible_text

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
    help="Output format.  [default: by FILE's extension; asciicast on stdout]",
)
@click.option("-o", "--output", metavar="FILE", default="-", help="Write to FILE, not stdout.")
@at_daemon
def command(terminal: str, *, form: str | None, output: str, daemon: ChosenDaemon) -> None:
    """Export TERMINAL to a file: as a recording, text, an HTML page, or a picture of its screen.

    An asciicast contains all retained output with its times; asciinema can play it, and so can
    acpterm replay. If the terminal was recorded (the setting record) and the recording contains
    more, the recording is written unchanged; its unreadable lines are reported. Text is that of
    acpterm logs. html shows the screen and all retained rows above it, in colour; svg shows the
    current screen.

    Without --format, FILE's extension selects the format: .cast means asciicast, .txt and .log mean
    text, .html and .htm mean html, and .svg means svg. Any other extension requires --format. An
    asciicast is written to stdout, to a pipe or device, and to a FILE without an extension.

    Only you can access FILE, and an existing file is replaced only when the new one is complete. A
    pipe or a device is written to.

    Exit status: 0; 1 if there is no such terminal or FILE cannot be written; 2 if FILE's extension
    does not determine a format.
    """
    if form is None:
        form = _format_of(output)
    try:
        # Create the whole export before its first byte is written to `output`.
        with tempfile.TemporaryFile() as export:
            is_displayed = output == "-" and os.isatty(1)
            if form == "asciicast":
                warning = _write_cast(daemon, terminal, export)
            else:
                warning = daemon.call(
                    lambda client: _write_export(
                        client, terminal, form, export, is_displayed=is_displayed
                    )
                )
            if warning:
                click.echo(f"acpterm: {warning}", err=True)
            write_to(output, export)
    except OSError as error:
        fail(f"{'stdout' if output == '-' else output}: {error.strerror}")


def _format_of(output: str) -> str:
    """Return the format for the extension; fail for an unknown one."""
    ending = os.path.splitext(output)[1].lower()
    # The name of a pipe or a device says nothing about the format.
    if output == "-" or not ending or (os.path.exists(output) and not os.path.isfile(output)):
        return "asciicast"
    if ending not in _ENDINGS:
        known = ", ".join(_ENDINGS)
        fail(f"{output}: {ending} is none of {known}: say --format", 2)
    return _ENDINGS[ending]


def _write_cast(daemon: ChosenDaemon, terminal: str, file: BinaryIO) -> str | None:
    """Write a recording to `file`; return a warning to print, or None."""
    from acpterm.cli._async import call_async  # noqa: PLC0415  only this format needs trio
    from acpterm.commands.export.export import write_cast  # noqa: PLC0415  as above

    report = call_async(daemon, lambda client: write_cast(client, terminal, file))
    return report.summary("of the recording cannot be read") if report.unread else None


def _write_export(
    client: BlockingClient, terminal: str, form: str, file: BinaryIO, *, is_displayed: bool
) -> str | None:
    """Return a warning if output is missing."""
    if form == "text":
        lost = _write_text(client, terminal, file, escape_invisible_text if is_displayed else str)
        return _missing_warning(lost) if lost else None
    screen = client.terminal_request("screen", terminal, ScreenResponse)
    info = client.terminal_request("get", terminal, TerminalInfo)
    title = picture.title_of(screen, info.command)
    if form == "svg":
        file.write(picture.svg(screen.rows, screen.cols, title).encode())
        return None
    history = read_history(client, terminal, screen)
    page = picture.page(chain(history.rows, screen.rows), title)
    file.writelines(piece.encode() for piece in page)
    return _missing_warning(history.lost) if history.lost else None


def _missing_warning(lost: int) -> str:
    return f"the beginning is missing{'' if lost == UNKNOWN else f': {lost} bytes'}"


def _write_text(
    client: BlockingClient, terminal: str, file: BinaryIO, escape: Callable[[str], str]
) -> int:
    """Return the number of bytes that are missing at the beginning, or `UNKNOWN`."""
    missing, last = 0, ""
    for complete, line, lost in follow_text(client, terminal, stay=False):
        missing = missing or lost
        file.write(escape(complete).encode())
        last = escape(line)
    file.write(f"{last}\n".encode() if last else b"")
    return missing
