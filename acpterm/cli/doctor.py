"""`acpterm doctor`: check this machine for what acpterm needs."""

import textwrap

import click

from acpterm.cli._async import run
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import json_option
from acpterm.cli._output import echo_once, is_colour_wanted, is_terminal, json_text
from acpterm.commands.doctor.check import CheckResult
from acpterm.commands.doctor.runner import examine
from acpterm.commands.output.blocking_stdout import window_size
from acpterm.runtime import logs

_COLOURS = {"ok": "green", "missing": "yellow", "problem": "red"}
# Number of columns before the result of a check and before its advice.
_INDENT = 28
_ADVICE = "→ "


@click.command("doctor")
@json_option
@at_daemon
def command(as_json: bool, daemon: ChosenDaemon) -> None:
    """Check this machine for what acpterm needs, and show how to get what is missing.

    The checks try what acpterm uses: a terminal, the emulator, the shell, directories, systemd and
    the daemon. They also show where the daemon's logs are.

    Each line begins with ok, missing (optional: terminals work without it) or problem (should be
    fixed). The checks take at most 3 seconds; a check of a place takes as long as its settings
    allow. The checks change nothing and start no daemon. They create a terminal and directories for
    testing, and remove them.

    Exit status: 0 if terminals can be created, 1 if a problem prevents that.
    """
    logs.configure("error", "text")
    results = run(examine, daemon.config, daemon.socket, expected=())
    echo_once(json_text(results) if as_json else _text(results))
    if any(result.fatal for result in results):
        raise SystemExit(1)


def _text(results: list[CheckResult]) -> str:
    columns = window_size()[0] if is_terminal() else None
    return "\n".join(_lines(result, columns) for result in results)


def _lines(result: CheckResult, columns: int | None) -> str:
    state = f"{result.state:<9}"
    if is_colour_wanted():
        state = click.style(state, fg=_COLOURS[result.state])
    lines = [f"{state}{result.check:<{_INDENT - 9}}{_wrapped(result.found, columns)}"]
    if result.advice is not None:
        lines.append(f"{'':{_INDENT}}{_wrapped(_ADVICE + result.advice, columns, len(_ADVICE))}")
    return "\n".join(lines)


def _wrapped(text: str, columns: int | None, hanging: int = 0) -> str:
    if columns is None or columns < 2 * _INDENT:
        return text
    wrapped = textwrap.fill(
        text,
        columns - _INDENT - 1,
        subsequent_indent=" " * hanging,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return wrapped.replace("\n", "\n" + " " * _INDENT)
