"""What a terminal remembers and shows, and the pool of all of them."""

from acpterm.terminal.keyboard import InputFullError
from acpterm.terminal.pool import Pool, ShutDownError
from acpterm.terminal.status import EndedBy, ExitStatus
from acpterm.terminal.terminal import FAREWELL, Terminal

__all__ = [
    "FAREWELL",
    "EndedBy",
    "ExitStatus",
    "InputFullError",
    "Pool",
    "ShutDownError",
    "Terminal",
]
