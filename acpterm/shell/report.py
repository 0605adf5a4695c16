r"""Parse the report that a shell writes to a file when a command has ended, or the shell is ready.

The file contains ``NUL nonce event n pid status pipe-status flags here cwd NUL``: between two NUL
bytes, nine fields that are separated by spaces.

- ``nonce`` is the random text that shows that the report comes from this shell.
- ``here`` is 1 if the path ``cwd`` still leads to the shell's working directory, otherwise 0.
- ``pipe-status`` has the exit codes separated by commas; ``-`` if the shell did not save them.
- ``cwd`` is the last field, since the path may contain spaces and newlines.

`Report` describes the other fields. An invalid report is ignored as a whole.
"""

from typing import Final, NamedTuple

REPORT_BYTES_MAX: Final = 64 * 1024  # a longer report is cut, and so invalid
_FIELDS = 9


class Report(NamedTuple):
    """A shell's report that a command has ended, or that the shell has read its rc files."""

    event: str  # `end` or `ready`
    n: int  # the number of the command; 0 for `ready`
    pid: int
    status: int
    pipe_status: list[int] | None  # of the last pipeline; None if it was not saved
    flags: str  # the shell's `$-`; `-` if unknown, and always in fish
    cwd: str
    cwd_exists: bool  # the path `cwd` still leads to the working directory


def parse_report(data: bytes, nonce: str) -> Report | None:
    """Parse a report; None if it is incomplete, of another nonce, or has a wrong number."""
    if not (data.startswith(b"\0") and data.endswith(b"\0") and data.count(b"\0") == 2):
        return None
    fields = data[1:-1].decode("utf-8", "surrogateescape").split(" ", _FIELDS - 1)
    if len(fields) != _FIELDS or fields[0] != nonce:
        return None
    _, event, n, pid, status, pipe, flags, here, cwd = fields
    try:
        pipe_status = None if pipe == "-" else [int(part) for part in pipe.split(",")]
        return Report(event, int(n), int(pid), int(status), pipe_status, flags, cwd, here == "1")
    except ValueError:
        return None
