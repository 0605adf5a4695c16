"""Conversion between signal numbers and names, such as `SIGTERM` or `SIGRTMIN+3` (real-time)."""

import os
import re
import signal
import sys

_REALTIME = re.compile(r"SIGRTMIN\+(\d{1,4})", re.ASCII)
# Signals without a name: 32 and 33 on Linux, which the C library reserves for itself.
_NUMBERED = re.compile(r"SIG(\d{1,4})", re.ASCII)


def name_of(number: int) -> str:
    """Return the name of a signal, or `SIG<number>`."""
    if sys.platform != "darwin" and signal.SIGRTMIN < number <= signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def number_of(name: str) -> int:
    """Return the number of a signal, with or without `SIG`, in any case. Raises `ValueError`."""
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    if realtime := _REALTIME.fullmatch(full):
        number = getattr(signal, "SIGRTMIN", 10_000) + int(realtime[1])
        if number in signal.valid_signals():
            return number
    elif full in signal.Signals.__members__:
        return signal.Signals[full]
    elif numbered := _NUMBERED.fullmatch(full):
        number = int(numbered[1])
        if 0 < number < signal.NSIG and name_of(number) == full:
            return number
    raise ValueError(f"there is no signal {name!r}: say SIGINT, SIGTERM, SIGKILL, SIGRTMIN+1 …")


def decode_status(status: int) -> tuple[int | None, str | None]:
    """Return the exit code or the signal's name from a status of waitpid(2)."""
    code = os.waitstatus_to_exitcode(status)
    return (code, None) if code >= 0 else (None, name_of(-code))
