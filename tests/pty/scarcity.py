"""A process that can open nothing: `no_descriptors()`."""

import os
import resource
from contextlib import contextmanager


@contextmanager
def no_descriptors(but=0):
    """Let none, or `but` so many, descriptors be open at a time for as long as the block lasts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Those that are open need not be the lowest: with the limit at the last, the others are left.
    free = [os.open(os.devnull, os.O_RDONLY) for _ in range(but + 1)]
    for fd in free:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
