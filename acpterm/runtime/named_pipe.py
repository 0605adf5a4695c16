"""A named pipe through which a program gets its standard input."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def named_pipe(directory: str) -> Iterator[str]:
    """Create a named pipe for this user only; yield its path, and remove it at the end."""
    # `directory` holds the daemon's socket, so the daemon can access it even from a container.
    parent = directory if os.access(directory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="stdin-", dir=parent) as temporary:
        path = os.path.join(temporary, "pipe")
        os.mkfifo(path, 0o600)
        yield path
