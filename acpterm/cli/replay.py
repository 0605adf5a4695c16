"""`acpterm replay`: replay a terminal or a recording."""

import math
import os
import tempfile
from functools import partial
from typing import BinaryIO

import click

from acpterm.cli._async import call_async, run
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import fail
from acpterm.cli._params import Finite, complete_terminal, terminal_name
from acpterm.commands.export.export import write_cast
from acpterm.commands.export.player import Playback, play_here, print_all
from acpterm.commands.output.trio_stdout import put
from acpterm.recording import asciicast


@click.command("replay")
@click.argument(
    "source", metavar="TERMINAL|FILE", type=terminal_name, shell_complete=complete_terminal
)
@click.option(
    "--speed",
    type=Finite(min=0, min_open=True),
    default=1,
    show_default=True,
    help="Playback speed, as a factor.",
)
@click.option(
    "--idle-limit",
    type=Finite(min=0, min_open=True),
    metavar="SECONDS",
    help="Maximum pause without output, in the recording's time.",
)
@at_daemon
def command(*, source: str, speed: float, idle_limit: float | None, daemon: ChosenDaemon) -> None:
    """Replay a terminal's output with its original timing, or a recording (an asciicast).

    Space pauses and resumes; the full stop (.) shows the next output, and pauses; Right and Left
    skip 5 seconds forward and back; Up and Down double and halve the speed; q quits.

    If FILE exists, it is played, even if a terminal has the same name. An argument that contains /
    is always a file. The replayed output controls this window as it controlled the original one.
    Afterwards the window's state is restored; only the printed text remains. If stdout is not a
    terminal, all output is printed without pauses. Lines that cannot be read are skipped, and
    reported at the end.

    Exit status: 0, also after q; 1 if there is no such terminal, or if the recording cannot be read
    or has no readable event; 130 after Ctrl-C.
    """
    with tempfile.TemporaryFile() as export:
        file: BinaryIO = export
        if "/" in source or os.path.exists(source):
            file = _open(source)
        else:
            call_async(daemon, lambda client: write_cast(client, source, export))
            export.seek(0)
        with file:
            try:
                cast = asciicast.read(asciicast.read_lines(file))
            except (asciicast.CastError, OSError) as error:
                fail(f"{source}: {error}")
            if not os.isatty(1):
                run(print_all, cast, expected=(OSError,))
                signal_number = None
            else:
                playback = Playback(
                    cast,
                    put,
                    speed=speed,
                    idle_limit=math.inf if idle_limit is None else idle_limit,
                    reopen=partial(_reread, file) if file.seekable() else None,
                )
                signal_number = run(play_here, playback, expected=(OSError, asciicast.CastError))
                cast = playback.cast
    if signal_number is not None:
        raise SystemExit(128 + signal_number)
    _report(source, cast.report)


def _reread(file: BinaryIO) -> asciicast.Cast:
    file.seek(0)
    return asciicast.read(asciicast.read_lines(file))


def _report(source: str, report: asciicast.CastReport) -> None:
    if not report.unread:
        return
    message = f"{source}: {report.summary('left out')}"
    if not report.events:
        fail(message)
    click.echo(f"acpterm: {message}", err=True)


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        fail(f"{path}: {error.strerror}")
