"""Creates nested directories, so deep that the path of the innermost is longer than PATH_MAX."""

import os
from pathlib import Path


def make_deep(top: Path, depth: int, name: str = "a") -> None:
    """Create `depth` nested directories called `name` in `top`."""
    current = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=current)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)
