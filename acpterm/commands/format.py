"""Formats terminals as rows of a list, and times, sizes and exit statuses as text.

All results are safe to print: commands, names and titles come from programs and agents, so
invisible and control characters in them are escaped.
"""

import math
import signal
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType

from acpterm.acp.agent_meta import BackgroundProcess
from acpterm.acp.user_api import ExitInfo, TerminalInfo
from acpterm.runtime.sanitize import one_line

WAITS: Final = "waits for input"
ENDING: Final = "ending"
NOTHING: Final = "-"

_KIB: Final = 1024
# Units of time: the length in seconds, and the abbreviation.
_SPANS: Final = ((24 * 3600, "d"), (3600, "h"), (60, "m"), (1, "s"))


# The order of terminals in a list, by their state.
_ORDER: Final = ("running", "queued", "exited", "released")
# Values of `ExitInfo.ended_by` for a program that was ended neither by the user, nor by the agent,
# nor by a limit. All except `lost` occur only on a cluster. `lost` means that the exit status is
# unknown: the connection to another host, or the status of a process of this machine, was lost.
_REASONS: Final = frozenset(
    ("lost", "node_failure", "time_limit", "preempted", "cancelled", "not_started")
)
# Maximum length of a command in a list, in characters. --json shows all of it.
_COMMAND: Final = 1000


class Row(NamedTuple):
    """The columns of the list; `age` and `output` are times since creation and last output."""

    id: str
    name: str
    state: str
    owner: str
    agent: str
    session: str
    where: str
    size: str
    age: str
    output: str
    command: str


class Item(NamedTuple):
    """A terminal's full id, and its row."""

    id: str
    row: Row


HEADER: Final = Row(
    "ID", "NAME", "STATE", "OWNER", "AGENT", "SESSION", "WHERE", "SIZE", "AGE", "OUTPUT", "COMMAND"
)


def columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def is_waiting(info: TerminalInfo) -> bool:
    """Return whether a terminal's program waits for input, or is stopped until it may read it."""
    needs_input = bool(info.waiting_for_input) or info.stopped is not UNSET
    return info.state == "running" and needs_input and not info.ending


def in_list_order(terminals: Iterable[TerminalInfo]) -> list[TerminalInfo]:
    """Sort: first those that wait, then by state; newest first (created, or ended, last)."""

    def rank(info: TerminalInfo) -> tuple[bool, int, int]:
        newest = -(info.exited_at or info.created_at)
        position = _ORDER.index("queued" if background_number(info) else info.state)
        return not is_waiting(info), position, newest

    # Of two terminals of the same millisecond, the daemon lists the older one first.
    newest_first = list(terminals)[::-1]
    return sorted(newest_first, key=rank)


def row(terminal: TerminalInfo, short: str, now: float) -> Row:
    """Return the row of a terminal in the list; times are durations before `now`."""
    return Row(
        id=short,
        name=_word(terminal.name),
        state=state(terminal, now),
        owner=terminal.owner,
        agent=_word(terminal.agent),
        session=_word(terminal.session_id),
        where=where(terminal),
        size=f"{terminal.cols}x{terminal.rows}",
        age=ago(terminal.created_at, now),
        output=ago(terminal.last_output_at, now),
        command=cut(summary_line(terminal.command), _COMMAND),
    )


def where(terminal: TerminalInfo) -> str:
    """Return the provider and the host; the directory if that of the session was gone; or `-`."""
    if terminal.cwd_gone is not UNSET:
        return f"{summary_line(terminal.cwd)}, since {summary_line(terminal.cwd_gone)} is gone"
    if terminal.provider == "local":
        return NOTHING
    if terminal.host is UNSET or terminal.provider.endswith(f":{terminal.host}"):
        return summary_line(terminal.provider)
    return f"{summary_line(terminal.provider)} ({summary_line(terminal.host)})"


def cut(text: str, most: int | None) -> str:
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def state(terminal: TerminalInfo, now: float) -> str:
    """Return the state as text, such as `running` or `exited 0, 1 still running on :5173`."""
    status = terminal.exit_status
    if status is None:
        how: str = ENDING if terminal.ending else terminal.state
        if how == "running" and (terminal.waiting_for_input or terminal.waiting_program):
            how = summary_line(terminal.waiting_program or WAITS)
        if how == "running" and not isinstance(terminal.stopped, UnsetType):
            how = f"stopped: {summary_line(terminal.stopped.command)} {terminal.stopped.why}"
    else:
        how = f"exited {status.exit_code}" if status.signal is None else ended(status)
        how += reason(status)
    if number := background_number(terminal):
        ports = " ".join(f":{port}" for each in background(terminal) for port in each.ports)
        return f"{how}, {number} still running{ports and f' on {ports}'}"
    if terminal.state != "released" or how == "released":
        return how
    when = ago(terminal.released_at, now)
    return f"{how}, released" if when == NOTHING else f"{how}, released {when} ago"


def background(info: TerminalInfo) -> list[BackgroundProcess]:
    return [] if info.background is UNSET else info.background


def background_number(info: TerminalInfo) -> int:
    omitted = 0 if info.background_omitted is UNSET else info.background_omitted
    return len(background(info)) + omitted


def background_line(process: BackgroundProcess) -> str:
    noun = "port" if len(process.ports) == 1 else "ports"
    ports = f", {noun} {' '.join(map(str, process.ports))}" if process.ports else ""
    return f"{summary_line(process.command)} (pid {process.pid}{ports})"


def background_notice(info: TerminalInfo) -> str | None:
    number = background_number(info)
    if not number:
        return None
    processes = "1 process" if number == 1 else f"{number} processes"
    first = background_line(background(info)[0])
    listed = first if number == 1 else f"{first} and others"
    return f"{processes} still running: {listed}; to end that: acpterm kill {title(info)}"


def ago(moment: int | None, now: float) -> str:
    """Return the time from `moment` (ms) to `now` (s), such as `5m`; `-` if it is None."""
    return NOTHING if moment is None else span(now - moment / 1000)


def span(seconds: float) -> str:
    """Return a duration in one unit, such as `5m`: coarse, so that a live list rarely changes."""
    for size, unit in _SPANS:
        if seconds >= size:
            return f"{math.floor(seconds / size)}{unit}"
    return "0s"


def duration(seconds: float) -> str:
    """Return a duration in at most two units, such as `1h 5m`."""
    for (size, unit), (smaller, less) in pairwise(_SPANS):
        if seconds >= size:
            rest = math.floor(seconds % size / smaller)
            return f"{math.floor(seconds / size)}{unit}" + (f" {rest}{less}" if rest else "")
    return span(seconds)


def memory(size: int) -> str:
    if size < _KIB:
        return f"{size} B"
    if size < _KIB * _KIB:
        return f"{size / _KIB:.1f} KiB"
    return f"{size / _KIB / _KIB:.1f} MiB"


def summary_line(text: str) -> str:
    """Return untrusted text as one line of any length, with invisible characters escaped."""
    return one_line(text, sys.maxsize)


def waiting_questions(count: int) -> str:
    return "1 command waits for you" if count == 1 else f"{count} commands wait for you"


def _word(text: str | None) -> str:
    return summary_line(text) or NOTHING if text else NOTHING


def title(info: TerminalInfo) -> str:
    """Return the name of a terminal; if it has none, the first eight digits of its id."""
    return info.name or info.terminal_id.removeprefix("term_")[:8]


def ended(status: ExitInfo) -> str:
    if status.signal is not None:
        return f"ended by {one_line(status.signal)}"
    return f"exited with {status.exit_code}"


def reason(status: ExitInfo) -> str:
    """Return why a cluster ended a program, such as ` (node failure)`, or ` (lost)`; else ""."""
    return f" ({status.ended_by.replace('_', ' ')})" if status.ended_by in _REASONS else ""


def end_notice(info: TerminalInfo, status: ExitInfo) -> str | None:
    """Say how a program ended if its status alone does not explain that; else return None."""
    if status.ended_by == "lost":
        on = "connection to its host" if info.provider.startswith("ssh:") else "exit status"
        return f"{title(info)} {ended(status)}: the {on} is lost"
    return f"{title(info)} {ended(status)}{found}" if (found := reason(status)) else None


def queue_notice(info: TerminalInfo) -> str:
    return f"{title(info)} waits in the queue of {summary_line(info.provider)}"


def ended_by(status: ExitInfo) -> str:
    """Return what ended a program, such as `by user` or `by idle: idle = 300`."""
    by = f"by {summary_line(status.ended_by)}"
    if status.limit is UNSET or status.limit_value is UNSET:
        return by
    return f"{by}: {summary_line(status.limit)} = {status.limit_value:.15g}"


def exit_code(status: ExitInfo) -> int:
    """Return the status a shell would report: 128 + n after signal n; 255 if it is unknown."""
    if status.signal is None:
        return 255 if status.exit_code is None else status.exit_code
    number = getattr(signal, status.signal, None)
    if sys.platform != "darwin" and number is None and status.signal.startswith("SIGRTMIN+"):
        number = signal.SIGRTMIN + int(status.signal.removeprefix("SIGRTMIN+"))
    return 128 + int(number or 0)
