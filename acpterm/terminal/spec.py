"""The parameters with which `pool` creates or adopts a terminal, as data."""

import math
from typing import Final, NamedTuple

from acpterm.pty.limits import Cause
from acpterm.terminal.remote import RemoteProgram
from acpterm.terminal.status import EndedBy

_MIB: Final = 1024 * 1024


class TerminalSpec(NamedTuple):
    """Size, retention, lifetime and creation time of a terminal, and its remote program, if any."""

    size: tuple[int, int] = (200, 40)
    """Columns and rows."""
    limit: int = _MIB
    """The maximum number of bytes of text to retain."""
    ring_size: int = _MIB
    """The number of bytes of raw output to retain."""
    lifetime: float = math.inf
    """Seconds from creation or adoption until the program is killed; infinite for no limit."""
    lifetime_cause: Cause | None = None
    """The limit that sets the lifetime; None if no limit does."""
    view: str = "text"
    """The view that the terminal's creator reads: `text`, `raw` or `screen`."""
    encoding: str = "utf-8"
    """The encoding of the program's output and input (`keeper.encodings`), if it is not adopted."""
    created_time: float | None = None
    """The time of creation in seconds since 1970; None: the current time."""
    started_at: float | None = None
    """The time of creation in seconds since boot (`pty.processes.now`); None: the current time."""
    ended_by: EndedBy | None = None
    """What has begun to kill the program of an adopted terminal; None if nothing has."""
    cause: Cause | None = None
    """The limit because of which the program was killed (`ended_by`); None if it was no limit."""
    remote: RemoteProgram | None = None
    """The program, if it runs on another host; otherwise None."""
