"""`acpterm audit`: print the audit log."""

import os
import select
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final

import click

from acpterm.acp.user_api import StatusResponse
from acpterm.audit.entry import EVENTS, time_text
from acpterm.audit.reader import AuditReader, LogLine
from acpterm.audit.selection import Selection
from acpterm.cli._daemon import SHORT_ANSWER_TIMEOUT_S, note_questions
from acpterm.cli._options import config_option, fail, settings
from acpterm.cli._output import echo, row_line
from acpterm.cli._params import parse_time
from acpterm.commands.audit_format import audit_row
from acpterm.commands.blocking_client import open_blocking_client
from acpterm.commands.output.blocking_stdout import note
from acpterm.config import Settings, agent_socket, audit_dir
from acpterm.config.paths import daemons_environment, is_usual_socket
from acpterm.jsonrpc import RpcError
from acpterm.link.blocking import DeadlineError
from acpterm.link.daemon import DaemonError
from acpterm.runtime.sanitize import escape_json

_POLL_S: Final = 0.25
# Lines are printed together in one write, once they have more than this many characters.
_WRITE_CHARS: Final = 64 * 1024


def _time(text: str) -> float:
    try:
        return parse_time(text, time.time())
    except (ValueError, OverflowError):
        examples = "10m, 2h, 1d, 10:30, 2026-01-31 or 2026-01-31T10:30"
        raise click.BadParameter(f"{text!r} is no time: give {examples}") from None


@click.command("audit")
@click.option("--session", metavar="S", help="Print only entries of sessions whose id begins so.")
@click.option("--agent", metavar="A", help="Print only entries of agents whose name begins so.")
@click.option(
    "--event",
    type=click.Choice(tuple(EVENTS)),
    metavar="E",
    help=f"Print only entries of this event: {', '.join(EVENTS)}.",
)
@click.option("--since", type=_time, metavar="TIME", help="Print only entries since TIME.")
@click.option("--json", "as_json", is_flag=True, help="Print the entries as they are in the file.")
@click.option("-f", "--follow", is_flag=True, help="Wait for more entries, until Ctrl-C.")
@config_option
def command(
    *,
    session: str | None,
    agent: str | None,
    event: str | None,
    since: float | None,
    as_json: bool,
    follow: bool,
    config: str | None,
) -> None:
    """Print the audit log: what ran, who decided on it, and how it ended.

    Each line has the time, the event, the agent, its session, the terminal, and details. A gap is a
    time in which the log could not be written; gaps are printed whatever is selected.

    Secrets are redacted before they are written to the log. Input is not logged, only its number of
    bytes. In a window lines are cut to its width, and one narrower than 120 columns has no session;
    elsewhere, and with --json, all of each entry is printed.

    TIME is a span before now, such as 10m, 2h, 1h30m or 1d, or a point in time: 10:30, 2026-01-31
    or 2026-01-31T10:30, which is local time, unless it ends with Z or an offset such as +02:00.

    The command reads the files itself, and needs no daemon; while one runs, its log is read.

    Exit status: 0 on success, 1 if the log cannot be read, 130 after Ctrl-C.
    """
    loaded = settings(config)
    directory = _directory(loaded)
    selection = Selection(
        since=None if since is None else time_text(since), session=session, agent=agent, event=event
    )

    def is_chosen(line: LogLine) -> bool:
        return selection.has(line.entry)

    with closing(AuditReader(directory, since)) as reader:
        try:
            _print(filter(is_chosen, reader.read()), as_json=as_json)
            while follow and _wait():
                _print(filter(is_chosen, reader.read()), as_json=as_json)
        except BrokenPipeError:
            raise SystemExit(0) from None
        except OSError as error:
            if error.filename == "stdout":
                raise
            fail(f"the audit log in {directory} cannot be read: {error.strerror}")
        if reader.skipped:
            lines = "line is" if reader.skipped == 1 else "lines are"
            note(f"{reader.skipped} {lines} incomplete or no entry, and left out")


def _directory(chosen: Settings) -> str:
    """Return the directory of the chosen log, else of the running daemon's, else of the usual one.

    Note the questions of the daemon if it is asked.
    """
    if chosen.audit_dir is not None:
        return chosen.audit_dir
    found = None
    try:
        with open_blocking_client(
            chosen, start=False, answer_timeout_s=SHORT_ANSWER_TIMEOUT_S
        ) as client:
            note_questions(client.questions)
            client.deadline = time.monotonic() + SHORT_ANSWER_TIMEOUT_S
            found = client.request_no_params("status", StatusResponse).audit_dir
    except (DaemonError, DeadlineError, RpcError):
        pass
    named, socket = audit_dir(chosen), agent_socket(chosen)
    directory = found or audit_dir(chosen, daemons_environment(socket))
    if not is_usual_socket(socket):
        return directory
    if os.path.realpath(directory) != os.path.realpath(named) and os.path.exists(named):
        note(f"this log is in {directory}; for another: ACPTERM_AUDIT_DIR={named} acpterm audit")
    return directory


def _print(lines: Iterable[LogLine], *, as_json: bool) -> None:
    texts: list[str] = []
    size = 0
    for text in _texts(lines, as_json=as_json):
        texts.append(text)
        size += len(text)
        if size > _WRITE_CHARS:
            echo("\n".join(texts))
            texts, size = [], 0
    if texts:
        echo("\n".join(texts))


def _texts(lines: Iterable[LogLine], *, as_json: bool) -> Iterator[str]:
    if as_json:
        for line in lines:
            yield escape_json(line.text.decode(errors="replace"))
        return
    for line in lines:
        row = audit_row(line.entry)
        yield row_line(row, row.colour)


def _wait() -> bool:
    """Return False once stdout has no reader, else True after `_POLL_S` seconds."""
    stdout = select.poll()
    stdout.register(1, 0)
    return not stdout.poll(1000 * _POLL_S)
