"""Wait statuses, as the exit code or the signal's name that they stand for."""

import os

from acpterm.pty.signals import name_of


def decode_status(status: int) -> tuple[int | None, str | None]:
    """Return the exit code (0 to 255) or the signal's name of a wait status; the other is None."""
    code = os.waitstatus_to_exitcode(status)
    return (code, None) if code >= 0 else (None, name_of(-code))
