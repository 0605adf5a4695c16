"""A process that can open nothing: `no_descriptors()`."""

import os
import resource
from contextlib import contextmanager


@contextmanager
def no_descriptors(but=0):
    """Let none, or `but` so many, descriptors be open at a time for as long as the block lasts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The lowest that is free: with the limit there, the next one would be one too many.
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + but, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
