"""Read and write descriptors that are shared with other processes, without trio.

Another process may have made a shared descriptor non-blocking. These functions then wait with
select(2).
"""

import os
import select


def read_some(fd: int, max_bytes: int) -> bytes:
    """Wait for data on `fd`; return at most `max_bytes`, or empty bytes at the end of the input.

    Raises `OSError` if the read fails.
    """
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
