"""`acpterm doctor`: says what this machine offers, and what is missing."""

import textwrap

import click

from acpterm.cli._async import run
from acpterm.cli._options import at_daemon
from acpterm.cli._output import echo_once, is_colour_wanted, is_terminal, json_text, window
from acpterm.client.user.doctor import CheckResult, examine
from acpterm.runtime import logs

_COLOURS = {"ok": "green", "missing": "yellow", "problem": "red"}
# Columns before what was found, and before what to do.
_INDENT = 26
_ADVICE = "→ "


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of what was found.")
@at_daemon
def command(as_json: bool, config: str | None, socket: str | None) -> None:
    """Say what this machine offers to terminals, what is missing, and how to get that.

    What acpterm uses is tried: a terminal, the emulator, the shell, directories, systemd, and the
    daemon. It also says where the daemon's logs are.

    Each line begins with ok, missing (terminals do without it) or problem (somebody should see to
    it). Nothing is changed, no daemon is started, and it takes three seconds at most. A terminal
    and folders are made on trial, and removed.

    Exit status: 0 there can be terminals, 1 something makes them impossible.
    """
    logs.configure("error", "text")
    found = run(examine, config, socket, expected=())
    echo_once(json_text(found) if as_json else _text(found))
    if any(finding.fatal for finding in found):
        raise SystemExit(1)


def _text(found: list[CheckResult]) -> str:
    columns = window()[0] if is_terminal() else None
    return "\n".join(_lines(finding, columns) for finding in found)


def _lines(finding: CheckResult, columns: int | None) -> str:
    state = f"{finding.state:<9}"
    if is_colour_wanted():
        state = click.style(state, fg=_COLOURS[finding.state])
    lines = [f"{state}{finding.check:<{_INDENT - 9}}{_folded(finding.found, columns)}"]
    if finding.advice is not None:
        lines.append(f"{'':{_INDENT}}{_folded(_ADVICE + finding.advice, columns, len(_ADVICE))}")
    return "\n".join(lines)


def _folded(text: str, columns: int | None, hanging: int = 0) -> str:
    if columns is None or columns < 2 * _INDENT:
        return text
    folded = textwrap.fill(
        text,
        columns - _INDENT - 1,
        subsequent_indent=" " * hanging,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return folded.replace("\n", "\n" + " " * _INDENT)
