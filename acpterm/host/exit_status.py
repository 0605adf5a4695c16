"""How a program ended, as it is said on the wire."""

import math
from typing import Final

from msgspec import UNSET, UnsetType

from acpterm.acp import ExitMeta, TerminalExitStatus
from acpterm.config import Settings
from acpterm.pty.signals import number_of
from acpterm.terminal.status import ExitStatus

# By the last part of the name in `initialize`: `@mistralai/mistral-vibe` is one.
_NULL_IS_SUCCESS: Final = frozenset({"mistral-vibe"})


def gives_signal_code(settings: Settings, agent: str | None = None) -> bool:
    """Return whether `agent` is sent 128 + n as the exit code on death by signal n, and not null.

    `agent` is the name that it gives itself; None is the user.
    """
    if settings.signal_exit_code == "auto":
        return (agent or "").rpartition("/")[2].lower() in _NULL_IS_SUCCESS
    return settings.signal_exit_code


def exit_status(status: ExitStatus | None, *, signal_code: bool) -> TerminalExitStatus | UnsetType:
    """Return an exit status for the wire; absent while there is none."""
    if status is None:
        return UNSET
    code = exit_code(status, signal_code=signal_code)
    return TerminalExitStatus(code, status.signal, exit_meta(status))


def exit_code(status: ExitStatus, *, signal_code: bool) -> int | None:
    """Return the exit code for the wire; see `gives_signal_code`."""
    if status.signal is not None and signal_code:
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
