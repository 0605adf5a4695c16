"""`acpterm replay`: a terminal or a recording, played again."""

import math
import os
import tempfile
from functools import partial
from typing import BinaryIO

import click

from acpterm.cli._async import call_async, run
from acpterm.cli._keyboard import has_keyboard
from acpterm.cli._options import at_daemon, fail
from acpterm.cli._params import Finite, TerminalName
from acpterm.client import replay
from acpterm.client.playback import Playback
from acpterm.client.user.export.export import write_cast
from acpterm.client.user.export.player import play_here, print_all
from acpterm.client.user.output.stdout import put


@click.command("replay")
@click.argument("what", metavar="TERMINAL|FILE", type=TerminalName())
@click.option(
    "--speed",
    type=Finite(min=0, min_open=True),
    default=1,
    show_default=True,
    help="How many times as fast.",
)
@click.option(
    "--idle-limit",
    type=Finite(min=0, min_open=True),
    metavar="SECONDS",
    help="Wait no longer than that, of the recording's time, where nothing happens.",
)
@at_daemon
def command(
    *, what: str, speed: float, idle_limit: float | None, config: str | None, socket: str | None
) -> None:
    """Play a terminal again as it was, or a recording: an asciicast.

    Space pauses and goes on, . shows the next output and pauses, Right and Left go five seconds
    forth and back, Up and Down play it twice or half as fast, q ends it.

    A FILE that exists is played, also when a terminal has that name; a terminal's id is hardly ever
    a file. With a / in it, it is a file. What is played steers this window as the program did then;
    afterwards the window is as before, but for what was printed. Where stdout is no terminal, all
    of it is printed at once. Lines that cannot be read are left out, which is said at the end.

    Exit status: 0, also after q; 1 if there is no such terminal or the recording, or all in it,
    cannot be read; 130 after Ctrl-C.
    """
    with tempfile.TemporaryFile() as made:
        file: BinaryIO = made
        if "/" in what or os.path.exists(what):
            file = _open(what)
        else:
            call_async(config, socket, lambda client: write_cast(client, what, made))
            made.seek(0)
        with file:
            try:
                cast = replay.read(replay.read_lines(file))
            except (replay.CastError, OSError) as error:
                fail(f"{what}: {error}")
            if not os.isatty(1):
                run(print_all, cast, expected=(OSError,))
                ended = None
            else:
                playback = Playback(
                    cast,
                    put,
                    speed=speed,
                    idle_limit=math.inf if idle_limit is None else idle_limit,
                    reopen=partial(_reread, file) if file.seekable() else None,
                )
                ended = run(play_here, playback, has_keyboard, expected=(OSError, replay.CastError))
                cast = playback.cast
    if ended is not None:
        raise SystemExit(128 + ended)
    _tell(what, cast.report)


def _reread(file: BinaryIO) -> replay.Cast:
    file.seek(0)
    return replay.read(replay.read_lines(file))


def _tell(what: str, report: replay.Report) -> None:
    """Say which lines were left out; fail if nothing else was there."""
    if not report.unread:
        return
    said = f"{what}: {report.summary('left out')}"
    if not report.events:
        fail(said)
    click.echo(f"acpterm: {said}", err=True)


def _open(path: str) -> BinaryIO:
    """Open a recording."""
    try:
        return open(path, "rb")
    except OSError as error:
        fail(f"{path}: {error.strerror}")
