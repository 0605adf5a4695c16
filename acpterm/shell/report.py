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

REPORT_BYTES_MAX: Final = 64 * 1024
"""The maximum number of bytes of a report that are read. A longer report is cut, and so invalid."""
_FIELDS = 9


class Report(NamedTuple):
    """A shell's report that a command has ended, or that the shell has read its rc files."""

    event: str
    """`end` for the end of a command; `ready` for a shell that has read its rc files."""
    n: int
    """The number of the command; 0 if `event` is `ready`."""
    pid: int
    """The shell's pid."""
    status: int
    """The command's exit code; 0 if `event` is `ready`."""
    pipe_status: list[int] | None
    """The exit code of each command of the last pipeline; None if the shell did not save them."""
    flags: str
    """The shell's ``$-``, its options as letters; ``-`` if unknown, and always in fish."""
    cwd: str
    """The shell's working directory."""
    cwd_exists: bool
    """Whether the path `cwd` still leads to the working directory."""


def parse_report(data: bytes, nonce: str) -> Report | None:
    """Parse `data`, the contents of a report's file; return None if it is invalid.

    A report is invalid if it is incomplete, if it has another nonce than `nonce`, or if a field
    that should be a number is not one.
    """
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
