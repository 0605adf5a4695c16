"""How a program ended, as it is said on the wire."""

import math

from msgspec import UNSET, UnsetType

from acpterm.acp import ExitMeta, TerminalExitStatus
from acpterm.config import Settings
from acpterm.pty.signals import number_of
from acpterm.terminal.status import ExitStatus


def exit_status(settings: Settings, status: ExitStatus | None) -> TerminalExitStatus | UnsetType:
    """Write an exit status for an agent; absent while there is none."""
    if status is None:
        return UNSET
    return TerminalExitStatus(exit_code(settings, status), status.signal, exit_meta(status))


def exit_code(settings: Settings, status: ExitStatus) -> int | None:
    """Give the exit code that an agent is told: 128 + n on death by signal n, if set so."""
    if status.signal is not None and settings.signal_exit_code:
        return 128 + number_of(status.signal)
    return status.code


def exit_meta(status: ExitStatus) -> dict[str, ExitMeta]:
    """Write what acpterm says beside it."""
    return {
        "acpterm": ExitMeta(
            ended_by=status.ended_by.value,
            wall_ms=round(1000 * status.wall),
            cpu_ms=UNSET if math.isnan(status.cpu) else round(1000 * status.cpu),
            max_rss_bytes=status.max_rss,
        )
    }
