"""`acpterm inspect`: show the details of a terminal."""

import shlex
import time
from collections.abc import Iterator

import click
from msgspec import UNSET, UnsetType

from acpterm.acp.user_api import InspectResponse, LaunchInfo, TerminalInfo
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import json_option
from acpterm.cli._output import echo_once, json_text
from acpterm.cli._params import terminal_argument
from acpterm.commands.format import (
    background,
    background_line,
    duration,
    ended_by,
    memory,
    reason,
    state,
    summary_line,
)

_WIDTH = 16


@click.command("inspect")
@terminal_argument()
@json_option
@at_daemon
def command(terminal: str, as_json: bool, daemon: ChosenDaemon) -> None:
    """Show the details of TERMINAL.

    The details are those of acpterm ls, and the terminal's directory, process, times, windows and
    recording, its exit status, and how much of its output can still be read. For a terminal of
    yours, --json also prints the arguments and the environment with which it was created; these may
    contain secrets.

    Exit status: 0; 1 if there is no such terminal.
    """
    found = daemon.terminal_request("inspect", terminal, InspectResponse)
    echo_once(json_text(found) if as_json else _text(found))


def _text(found: InspectResponse) -> str:
    return "\n".join(f"{name:<{_WIDTH}}{value}" for name, value in _lines(found))


def _lines(found: InspectResponse) -> Iterator[tuple[str, str]]:
    info = found.terminal
    yield "id", info.terminal_id
    yield "name", summary_line(info.name) if info.name else "none"
    yield "state", _state(info)
    if info.exit_status is None and not isinstance(info.stopped, UnsetType):
        yield "stopped", f"pid {info.stopped.pid}: {info.stopped.hint}"
    promoted = "" if info.promoted_by is UNSET else f", promoted by the {info.promoted_by}"
    yield "owner", f"{info.owner}{promoted}"
    if info.connection is not None:
        agent = summary_line(info.agent or "unknown")
        session = summary_line(info.session_id or "-")
        yield "agent", f"{agent}, connection {info.connection}, session {session}"
    if info.tool_calls:
        yield "tool calls", summary_line(", ".join(info.tool_calls))
    yield "command", summary_line(_command(found.launch) if found.launch else info.command)
    gone = "" if info.cwd_gone is UNSET else f", since {summary_line(info.cwd_gone)} is gone"
    yield "directory", f"{summary_line(info.cwd)}{gone}"
    yield from _judged(info)
    yield (
        "provider",
        f"{info.provider}, a {info.isolation}" if info.isolation != "none" else _place(info),
    )
    if found.launch is not None:
        yield "environment", f"{len(found.launch.env)} variables, see --json"
    if info.pid is not None:
        yield "pid", str(info.pid)
    yield "size", f"{info.cols}x{info.rows}"
    sizes = (f"{size.cols}x{size.rows}{' read-only' * size.read_only}" for size in found.windows)
    yield "windows", ", ".join(sizes) or "none"
    yield from _past(info)
    retained = f"readable from {found.oldest} on, {memory(found.retained_bytes)} in memory"
    yield "output", f"{info.position} bytes, {retained}"
    yield "recording", summary_line(info.recording) if info.recording else "none"
    if info.unenforced_limits is not UNSET:
        for sentence in info.unenforced_limits:
            yield "warning", summary_line(sentence)


def _judged(info: TerminalInfo) -> Iterator[tuple[str, str]]:
    if info.level is not None:
        yield "level", info.level
    if info.loss is not UNSET:
        yield "loses", info.loss
    unkept = "" if info.unkept is UNSET else f": {summary_line(info.unkept)}"
    if info.is_kept is True:
        yield "undo", f"of its directory: acpterm undo {summary_line(info.terminal_id)}{unkept}"
    elif unkept:
        yield "undo", f"not to before this command{unkept}"


def _past(info: TerminalInfo) -> Iterator[tuple[str, str]]:
    yield "created", _moment(info.created_at)
    yield "last output", _moment(info.last_output_at)
    for process in background(info):
        yield "background", background_line(process)
    if info.exited_at is not None:
        yield "exited", _moment(info.exited_at)


def _place(info: TerminalInfo) -> str:
    on = "" if info.host is UNSET else f", on {summary_line(info.host)}"
    return f"{summary_line(info.provider)}{on}"


def _state(info: TerminalInfo) -> str:
    status, now = info.exit_status, time.time()
    if status is None:
        return state(info, now)
    outcome, comma, rest = state(info, now).partition(", ")
    by = "" if status.ended_by == "exited" or reason(status) else f" ({ended_by(status)})"
    return f"{outcome} after {duration(status.wall_ms / 1000)}{by}{comma}{rest}"


def _command(launch: LaunchInfo) -> str:
    # A command without arguments is a line for the shell.
    return launch.command if launch.args is None else shlex.join((launch.command, *launch.args))


def _moment(at: int | None) -> str:
    if at is None:
        return "never"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at / 1000))
