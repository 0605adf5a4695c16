"""A terminal as the person is told of it."""

import os

from acpterm.acp.user_api import ExitOf, TerminalInfo
from acpterm.host.registry import CALL_ID, CALLS, Entry
from acpterm.host.windows import Windows
from acpterm.terminal.status import ExitStatus


def describe(entry: Entry, windows: Windows, *, waiting: bool | None) -> TerminalInfo:
    """Say how a terminal is now; `waiting`: whether it waits for input (see `attention`)."""
    terminal, session = entry.terminal, entry.session
    last = terminal.timeline.last
    return TerminalInfo(
        terminal_id=entry.id,
        name=entry.name,
        state="released" if entry.released else "exited" if terminal.exit else "running",
        owner="user" if entry.is_users else "agent",
        visible=entry.is_users,
        agent=session.agent.name if session else None,
        connection=session.agent.connection if session else None,
        session_id=session.id if session else None,
        tool_calls=[call for call in entry.tool_calls[-CALLS:] if len(call) <= CALL_ID],
        command=entry.command,
        # Not every folder's name is UTF-8.
        cwd=os.fsencode(entry.cwd).decode(errors="replace"),
        pid=terminal.pid,
        cols=terminal.cols,
        rows=terminal.rows,
        created_at=round(1000 * entry.made),
        last_output_at=None if last is None else round(1000 * _at(entry, last)),
        exited_at=None if entry.exited is None else round(1000 * entry.exited),
        position=terminal.ring.end,
        attached=windows.count(entry),
        waiting_for_input=waiting,
        recording=entry.recording,
        exit_status=exit_of(terminal.exit),
        ending=entry.ending,
        released_at=None if entry.released is None else round(1000 * entry.released),
    )


def _at(entry: Entry, moment: float) -> float:
    """Give the time of day, in seconds since 1970, of a moment of the monotonic clock."""
    return entry.made + moment - entry.terminal.timeline.start


def exit_of(status: ExitStatus | None) -> ExitOf | None:
    """Say how a program ended."""
    if status is None:
        return None
    return ExitOf(
        exit_code=status.code,
        signal=status.signal,
        ended_by=status.ended_by.value,
        wall_ms=round(1000 * status.wall),
    )
