"""A reserve of file descriptors, for operations that must work when no others are free.

There is one `reserve` per process, which is empty until `keep` is called. Ordinary operations do
not use the reserve: they fail with EMFILE. Operations that serve the user, or that find and kill
processes, borrow descriptors from the reserve (`lent`, `borrow`).
"""

import errno
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

T = TypeVar("T")

RESERVE_SIZE: Final = 32
LOAN_SIZE: Final = 8
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)
"""The error numbers that mean that the process, or the system, has no descriptor left."""
NO_ROOM: Final = (*EXHAUSTED, errno.ENOMEM, errno.ENOBUFS)
"""Errors of accept(2) when the system lacks a resource for another connection."""


@contextmanager
def named_pipe(directory: str) -> Iterator[str]:
    """Create a named pipe for this user only; yield its path, and remove it at the end."""
    # `directory` holds the daemon's socket, so the daemon can access it even from a container.
    parent = directory if os.access(directory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="stdin-", dir=parent) as temporary:
        path = os.path.join(temporary, "pipe")
        os.mkfifo(path, 0o600)
        yield path


class DescriptorReserve:
    """Files that are kept open only to make descriptors available by closing them."""

    def __init__(self) -> None:
        self._count = 0
        self._held: list[int] = []

    def keep(self, count: int = RESERVE_SIZE) -> None:
        """Set the size of the reserve to `count`, and fill it with the descriptors available."""
        self._count = count
        self.refill()

    def refill(self) -> bool:
        """Bring the reserve to the size of `keep`; False if it stays smaller."""
        while len(self._held) > self._count:
            os.close(self._held.pop())
        while len(self._held) < self._count:
            try:
                # Open the file each time, because the system's table of open files may be full.
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return False
        return True

    @contextmanager
    def lent(self, count: int = LOAN_SIZE) -> Iterator[None]:
        """Close `count` descriptors for the block to use; then refill, as far as possible."""
        for fd in self._held[-count:]:
            os.close(fd)
        del self._held[-count:]
        try:
            yield
        finally:
            self.refill()

    def borrow(self, work: Callable[[], T]) -> T:
        """Call `work`; if no descriptor is free, lend it some and call it again."""
        try:
            return work()
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
        with self.lent():
            return work()


reserve: Final = DescriptorReserve()


def check_available(count: int) -> None:
    """Raise `OSError` (EMFILE) if fewer than `count` more descriptors can be opened."""
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while len(opened) < count:
            opened.append(os.dup(opened[0]))
    finally:
        for fd in opened:
            os.close(fd)


def raise_open_files() -> None:
    """Raise the soft limit of open files to the hard limit, if the system permits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
