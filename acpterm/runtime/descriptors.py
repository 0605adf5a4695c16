"""File descriptors kept for what has to work when all others are in use.

The table of descriptors is the process's, and so is the reserve: `reserve`, one for each process,
which is empty until `keep` is called. What is at hand for everybody ends before it; what serves the
user, and what finds and ends processes, borrows from it (`lent`).
"""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

T = TypeVar("T")

KEPT: Final = 32
LENT: Final = 8
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)


class DescriptorReserve:
    """Open files that nobody uses, to be closed when one is needed."""

    def __init__(self) -> None:
        self._count = 0
        self._held: list[int] = []

    def keep(self, count: int = KEPT) -> None:
        """Hold `count` descriptors from now on, as soon as there are so many."""
        self._count = count
        self.refill()

    def refill(self) -> bool:
        """Take back what was lent, as far as there is; return whether the reserve is whole."""
        while len(self._held) > self._count:
            os.close(self._held.pop())
        while len(self._held) < self._count:
            try:
                # Each a file of its own: the system's table of files may be what is full.
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return False
        return True

    @contextmanager
    def lent(self, count: int = LENT) -> Iterator[None]:
        """Have `count` descriptors of the reserve free in the block.

        What stays open after the block is missing from the reserve until there are others.
        """
        for fd in self._held[-count:]:
            os.close(fd)
        del self._held[-count:]
        try:
            yield
        finally:
            self.refill()

    def borrow(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, which is done again with the reserve if need be."""
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
