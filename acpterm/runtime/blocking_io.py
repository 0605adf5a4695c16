"""Read and write descriptors that are shared with other processes, without trio.

Another process may have made a shared descriptor non-blocking. These functions then wait with
select(2).
"""

import os
import select


def read_some(fd: int, max_bytes: int) -> bytes:
    """Wait for data on `fd`; return at most `max_bytes`, empty at the end of the input."""
    while True:
        try:
            return os.read(fd, max_bytes)
        except BlockingIOError:
            select.select((fd,), (), ())


def write_fully(fd: int, data: bytes) -> None:
    """Write all of `data` to `fd`. Raises `OSError` if a write fails, such as EPIPE."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select((), (fd,), ())


def take_descriptors() -> tuple[int, int]:
    """Move stdin and stdout to two new descriptors. Raises `OSError` if stdout is closed."""
    # From then on 0 is /dev/null and 1 is stderr. A closed stdin is treated as empty.
    if 1 in open_missing():
        raise OSError("stdout is closed: there is nowhere to answer to")
    taken = os.dup(0), os.dup(1)
    _to_null(0)
    os.dup2(2, 1)
    return taken


def open_missing() -> list[int]:
    """Open `/dev/null` as each closed descriptor of 0, 1 and 2; return their numbers."""
    # Otherwise the next opened file would get one of these numbers.
    missing = [fd for fd in (0, 1, 2) if not _is_open(fd)]
    for fd in missing:
        _to_null(fd)
    return missing


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _to_null(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != fd:
        os.dup2(null, fd)
        os.close(null)
