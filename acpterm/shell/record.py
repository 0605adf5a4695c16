r"""What a shell reports beside its output: a file with one record for each command.

A record is ``NUL nonce event n pid status pipe-status flags here directory NUL``, separated by
spaces. The directory is last, since its name may contain spaces and newlines. Of an invalid record
nothing is used.
"""

from typing import Final, NamedTuple

RECORD_BYTES_MAX: Final = 64 * 1024
_FIELDS = 9


class Record(NamedTuple):
    """The end of a command, or the start of the shell (`event` is `end` or `ready`)."""

    event: str
    n: int
    pid: int
    status: int
    pipe_status: list[int] | None
    flags: str
    """The shell's ``$-``, if it has one."""
    cwd: str
    cwd_exists: bool


def parse_record(data: bytes, nonce: str) -> Record | None:
    """Return the record in `data`, the contents of a file; None if there is no valid one."""
    if not (data.startswith(b"\0") and data.endswith(b"\0") and data.count(b"\0") == 2):
        return None
    fields = data[1:-1].decode("utf-8", "surrogateescape").split(" ", _FIELDS - 1)
    if len(fields) != _FIELDS or fields[0] != nonce:
        return None
    _, event, n, pid, status, pipe, flags, here, cwd = fields
    try:
        pipe_status = None if pipe == "-" else [int(part) for part in pipe.split(",")]
        return Record(event, int(n), int(pid), int(status), pipe_status, flags, cwd, here == "1")
    except ValueError:
        return None
