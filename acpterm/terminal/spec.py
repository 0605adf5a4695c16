"""The parameters with which `pool` creates or adopts a terminal, as data."""

import math
from typing import Final, NamedTuple

from acpterm.pty.limits import Cause
from acpterm.terminal.remote import RemoteProgram
from acpterm.terminal.status import EndedBy

_MIB: Final = 1024 * 1024


class TerminalSpec(NamedTuple):
    """How the pool makes a terminal."""

    size: tuple[int, int] = (200, 40)  # columns and rows
    limit: int = _MIB  # bytes of text to retain
    ring_size: int = _MIB  # bytes of raw output to retain
    lifetime: float = math.inf  # seconds from creation or adoption until the program is killed
    lifetime_cause: Cause | None = None  # the limit that sets the lifetime, if one does
    view: str = "text"  # what the creator reads: `text`, `raw` or `screen`
    encoding: str = "utf-8"  # of output and input (`keeper.encodings`), if it is not adopted
    created_time: float | None = None  # seconds since 1970; None: now
    started_at: float | None = None  # seconds since boot (`pty.processes.now`); None: now
    ended_by: EndedBy | None = None  # what has begun to kill the program of an adopted terminal
    cause: Cause | None = None  # the limit because of which it did
    remote: RemoteProgram | None = None  # the program, if it runs on another host
