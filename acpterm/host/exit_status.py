"""Exit statuses on the wire."""

import math
from typing import Final

from msgspec import UNSET, UnsetType

from acpterm.acp.agent_api import ExitMeta
from acpterm.acp.terminal import TerminalExitStatus
from acpterm.config import Settings
from acpterm.pty.signals import number_of
from acpterm.terminal.status import ExitStatus

# Agents that take a null exit code for success, by the last part of their name in `initialize`,
# such as `@mistralai/mistral-vibe`.
_NULL_IS_SUCCESS: Final = frozenset({"mistral-vibe"})


def gives_signal_code(settings: Settings, agent: str | None = None) -> bool:
    """Return whether death by signal n is reported as exit code 128 + n, and not null.

    `agent` is the agent's name in `initialize`; None for the user.
    """
    if settings.signal_exit_code == "auto":
        return (agent or "").rpartition("/")[2].lower() in _NULL_IS_SUCCESS
    return settings.signal_exit_code


def exit_status(status: ExitStatus | None, *, signal_code: bool) -> TerminalExitStatus | UnsetType:
    """Return an exit status for the wire; UNSET while the program runs."""
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
    """Return the `_meta` of an exit status."""
    return {
        "acpterm": ExitMeta(
            ended_by=status.ended_by.value,
            wall_ms=round(1000 * status.wall),
            cpu_ms=UNSET if math.isnan(status.cpu) else round(1000 * status.cpu),
            max_rss_bytes=status.max_rss,
        )
    }
