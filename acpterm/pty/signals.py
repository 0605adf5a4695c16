"""Signals by name, both ways: `SIGTERM`, `SIGKILL`, and real-time ones as `SIGRTMIN+3`."""

import re
import signal
import sys

_REALTIME = re.compile(r"SIGRTMIN\+(\d{1,4})", re.ASCII)
# Those that have no name: 32 and 33 on Linux, which the C library keeps for itself.
_NUMBERED = re.compile(r"SIG(\d{1,4})", re.ASCII)


def name_of(number: int) -> str:
    """Give the name of signal `number`; `SIG<number>` for one that this system has no name for."""
    if sys.platform != "darwin" and signal.SIGRTMIN < number <= signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def number_of(name: str) -> int:
    """Give the number of the signal `name`, with or without `SIG`, in either case.

    Raises `ValueError` with the name when there is no such signal.
    """
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
