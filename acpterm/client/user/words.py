"""Titles and exit statuses of terminals, for messages to the user."""

import signal
import sys

from acpterm.acp.user_api import ExitInfo, TerminalInfo
from acpterm.client.sanitize import one_line


def title(info: TerminalInfo) -> str:
    """Return the name of a terminal, or the first eight digits of its id."""
    return info.name or info.terminal_id.removeprefix("term_")[:8]


def ended(status: ExitInfo) -> str:
    """Return how a program ended, as `exited with 3`; it is safe to print."""
    if status.signal is not None:
        return f"ended by {one_line(status.signal)}"
    return f"exited with {status.exit_code}"


def exit_code(status: ExitInfo) -> int:
    """Return the exit status as a shell does: 128 + n for the signal n."""
    if status.signal is None:
        return 255 if status.exit_code is None else status.exit_code
    number = getattr(signal, status.signal, None)
    if sys.platform != "darwin" and number is None and status.signal.startswith("SIGRTMIN+"):
        number = signal.SIGRTMIN + int(status.signal.removeprefix("SIGRTMIN+"))
    return 128 + int(number or 0)
