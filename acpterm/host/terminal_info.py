"""Describes terminals and exit statuses on the wire.

`terminal_info` and `exit_info` are for the user's clients. The other functions describe an exit as
ACP does, for agents, and for read requests of the user's clients.
"""

import math
import signal
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from acpterm.acp.agent_api import StoppedProgram
from acpterm.acp.agent_meta import BackgroundProcess, ExitMeta
from acpterm.acp.terminal import TerminalExitStatus
from acpterm.acp.user_api import ExitInfo, State, TerminalInfo
from acpterm.config import Settings
from acpterm.host.entry import TOOL_CALL_ID_MAX, TOOL_CALLS_MAX, InputWait, TerminalEntry
from acpterm.host.state.records import unpack_text
from acpterm.jsonrpc import readable
from acpterm.pty.background import Background
from acpterm.pty.input_wait.detect import StoppedProcess
from acpterm.pty.signals import number_of
from acpterm.terminal.status import ExitStatus
from acpterm.terminal.terminal import Terminal

# Agents that take a null exit code for success, by the last part of their name in `initialize`,
# such as `@mistralai/mistral-vibe`.
_NULL_IS_SUCCESS: Final = frozenset({"mistral-vibe"})


def terminal_info(entry: TerminalEntry, *, waiting: InputWait) -> TerminalInfo:
    terminal, session = entry.terminal, entry.session
    limits = entry.record.limits
    last = terminal.timeline.last
    return TerminalInfo(
        terminal_id=entry.id,
        name=entry.name,
        state=_state(entry),
        owner="user" if entry.is_users else "agent",
        promoted_by=_promoted_by(entry),
        agent=session.agent.name if session else None,
        connection=session.agent.connection_id if session else None,
        session_id=session.id if session else None,
        tool_calls=[
            call for call in entry.tool_calls[-TOOL_CALLS_MAX:] if len(call) <= TOOL_CALL_ID_MAX
        ],
        command=entry.command,
        cwd=readable(entry.cwd),
        pid=terminal.pid,
        cols=terminal.cols,
        rows=terminal.rows,
        created_at=round(1000 * entry.record.created_time),
        last_output_at=None if last is None else round(1000 * _unix_time(entry, last)),
        exited_at=None if entry.exited_at is None else round(1000 * entry.exited_at),
        position=terminal.ring.end,
        attached=entry.window_count,
        waiting_for_input=waiting.asks,
        waiting_program=_waiting_program(waiting, terminal),
        cwd_gone=cwd_gone(entry),
        recording=entry.record.recording,
        exit_status=exit_info(terminal.exit),
        ending=entry.record.killed_at is not None and terminal.exit is None,
        released_at=None if entry.released_at is None else round(1000 * entry.released_at),
        provider=entry.record.provider,
        isolation=entry.record.isolation,
        host=UNSET if entry.record.host is None else entry.record.host,
        level=entry.record.level,
        loss=UNSET if entry.record.loss is None else entry.record.loss,
        unkept=entry.record.unkept or UNSET,
        is_kept=entry.record.is_kept or UNSET,
        unenforced_limits=limits.unenforced if limits and limits.unenforced else UNSET,
        hides_input=terminal.hides_input,
        stopped=stopped_info(waiting.stopped),
        background=background(entry),
        background_omitted=entry.background.omitted or UNSET,
    )


def for_agent(info: TerminalInfo) -> TerminalInfo:
    """Return `info` without its connection, windows and recording, which only concern the user."""
    return msgspec.structs.replace(info, connection=None, attached=0, recording=None)


def _waiting_program(waiting: InputWait, terminal: Terminal) -> str | UnsetType:
    if waiting.program and terminal.hides_input:
        return waiting.program.replace("waits for input", "waits for a password")
    return waiting.program or UNSET


def stopped_info(stopped: StoppedProcess | None) -> StoppedProgram | UnsetType:
    if stopped is None:
        return UNSET
    if stopped.signal not in (signal.SIGTTIN, signal.SIGTTOU):
        how = f"was stopped by {stopped.signal.name}"
        does = f"kill -CONT {stopped.pid} continues it"
        return StoppedProgram(stopped.pid, stopped.name, how, does)
    wants = "read the terminal" if stopped.signal == signal.SIGTTIN else "set the terminal's modes"
    is_timeouts = stopped.leader == "timeout"
    does = "use timeout --foreground" if is_timeouts else "start it in the foreground"
    return StoppedProgram(stopped.pid, stopped.name, f"wants to {wants} in the background", does)


def cwd_gone(entry: TerminalEntry) -> str | UnsetType:
    """Return the directory of the terminal's session if it was gone."""
    gone = entry.record.cwd_gone
    return UNSET if gone is None else readable(unpack_text(gone))


def background(entry: TerminalEntry) -> list[BackgroundProcess] | UnsetType:
    """Describe what an exited program has left running; UNSET if nothing is known to run."""
    return background_processes(entry.background)


def background_processes(found: Background) -> list[BackgroundProcess] | UnsetType:
    return [BackgroundProcess(p.pid, p.command, list(p.ports)) for p in found.processes] or UNSET


def _promoted_by(entry: TerminalEntry) -> Literal["agent", "user"] | UnsetType:
    if entry.is_created_by_user or not entry.is_users:
        return UNSET
    return "agent" if entry.record.is_given else "user"


def _state(entry: TerminalEntry) -> State:
    if entry.released_at:
        return "released"
    if entry.terminal.exit:
        return "exited"
    return "queued" if entry.terminal.is_queued else "running"


def _unix_time(entry: TerminalEntry, moment: float) -> float:
    """Convert a monotonic time to Unix time, by the start, known on both clocks."""
    return entry.record.created_time + moment - entry.terminal.timeline.start


def exit_info(status: ExitStatus | None) -> ExitInfo | None:
    """Describe how a program exited, for the user's clients; None while the program runs."""
    if status is None:
        return None
    return ExitInfo(
        exit_code=status.code,
        signal=status.signal,
        ended_by=status.ended_by.value,
        **_exit_facts(status),
    )


def _exit_facts(status: ExitStatus) -> dict[str, Any]:
    """Return the members of `ExitFacts`."""
    return {
        "wall_ms": round(1000 * status.wall),
        "limit": status.cause.limit if status.cause else UNSET,
        "limit_value": status.cause.value if status.cause else UNSET,
    }


def gives_signal_code(settings: Settings, agent: str | None = None) -> bool:
    """Return whether an end by signal n is sent as 128 + n, by `signal_exit_code`."""
    # `auto` means 128 + n for agents known to take a null exit code for success.
    if settings.signal_exit_code == "auto":
        return (agent or "").rpartition("/")[2].lower() in _NULL_IS_SUCCESS
    return settings.signal_exit_code


def exit_status(entry: TerminalEntry, *, signal_code: bool) -> TerminalExitStatus | UnsetType:
    """Return an exit status as agents get it; UNSET while the program runs."""
    status = entry.terminal.exit
    if status is None:
        return UNSET
    code = exit_code(status, signal_code=signal_code)
    return TerminalExitStatus(code, status.signal, exit_meta(entry, status))


def exit_code(status: ExitStatus, *, signal_code: bool) -> int | None:
    """Return the exit code as agents get it: 128 + n after signal n if `signal_code`, else None."""
    if status.signal is not None and signal_code:
        return 128 + number_of(status.signal)
    return status.code


def exit_meta(entry: TerminalEntry, status: ExitStatus) -> dict[str, ExitMeta]:
    """Return the `_meta` of an exit status: cause, resources, and what was left running."""
    return {
        "acpterm": ExitMeta(
            ended_by=status.ended_by.value,
            cpu_ms=UNSET if math.isnan(status.cpu) else round(1000 * status.cpu),
            max_rss_bytes=status.max_rss,
            host=UNSET if status.host is None else status.host,
            background=background(entry),
            background_omitted=entry.background.omitted or UNSET,
            **_exit_facts(status),
        )
    }
