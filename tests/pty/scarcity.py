"""Simulate a process that has no file descriptors left: `no_descriptors()`."""

import os
import resource
from contextlib import contextmanager


@contextmanager
def no_descriptors(but=0):
    """Let at most `but` more descriptors be open at a time in the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The open descriptors need not be the lowest ones. With the limit at the highest free one of
    # these, the others remain available.
    free = [os.open(os.devnull, os.O_RDONLY) for _ in range(but + 1)]
    for fd in free:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
