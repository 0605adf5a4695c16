"""A reserve of file descriptors for operations that must work when all others are in use.

The table of descriptors belongs to the process, and so does the reserve: there is one `reserve` per
process, which is empty until `keep` is called. Ordinary operations fail with EMFILE before the
reserve is used. Operations that serve the user, and those that find and kill processes, borrow from
it (`lent`).
"""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

T = TypeVar("T")

RESERVE_SIZE: Final = 32
LOAN_SIZE: Final = 8
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)
"""The errors of a process, or a system, that has no descriptor left."""


class DescriptorReserve:
    """Unused open files, which are closed when descriptors are needed."""

    def __init__(self) -> None:
        self._count = 0
        self._held: list[int] = []

    def keep(self, count: int = RESERVE_SIZE) -> None:
        """Hold `count` descriptors from now on, as soon as that many are available."""
        self._count = count
        self.refill()

    def refill(self) -> bool:
        """Open as many descriptors as are missing; return whether the reserve is complete."""
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
        """Free `count` descriptors of the reserve for the block.

        Descriptors that stay open after the block are missing from the reserve until others are
        available.
        """
        for fd in self._held[-count:]:
            os.close(fd)
        del self._held[-count:]
        try:
            yield
        finally:
            self.refill()

    def borrow(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, which is retried with the reserve if descriptors run out."""
        try:
            return work()
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
        with self.lent():
            return work()


reserve: Final = DescriptorReserve()


def raise_open_files() -> None:
    """Raise the limit of open files to its maximum: a terminal takes two or three descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
