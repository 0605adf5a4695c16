"""Removes a directory that a sandboxed program could write to, however hostile its contents are.

The tree may be deeper than the recursion limit, its paths longer than the kernel accepts, and its
directories without permissions. So each subdirectory is moved to the top directory, and emptied
there. Then no path has more than two components, and three file descriptors are enough.
"""

import contextlib
import os
import stat
from typing import Final

_DIRECTORY: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Only Linux has O_PATH, and only there do sandboxes exist.
_PATH: Final[int] = getattr(os, "O_PATH", 0)
_NAME_BYTES: Final = 16


def remove_tree(path: str) -> None:
    """Remove a directory with its contents. Does not raise: what cannot be removed is left."""
    with contextlib.suppress(OSError):
        top = _open(path, None)
        try:
            names = _emptied(top, top)
            while names:
                name = names.pop()
                # Continue with the other directories if this one cannot be removed.
                with contextlib.suppress(OSError):
                    directory = _open(name, top)
                    try:
                        names += _emptied(directory, top)
                    finally:
                        os.close(directory)
                    os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        os.rmdir(path)


def _emptied(directory: int, top: int) -> list[str]:
    """Remove the files in `directory`, and move its subdirectories to `top`; return these."""
    found = []
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
                os.unlink(name, dir_fd=directory)
            elif directory == top:
                found.append(name)
            else:
                # The kernel moves a directory to another parent only if it is writable. Opening it
                # gives the owner this permission.
                os.close(_open(name, directory))
                fresh = os.urandom(_NAME_BYTES).hex()
                os.rename(name, fresh, src_dir_fd=directory, dst_dir_fd=top)
                found.append(fresh)
    return found


def _open(name: str, parent: int | None) -> int:
    """Give the owner of a directory all permissions, then open it."""
    place = os.open(name, _PATH | _DIRECTORY, dir_fd=parent)
    try:
        # chmod(2) by name would follow a symbolic link that has replaced the directory.
        os.chmod(f"/proc/self/fd/{place}", stat.S_IRWXU)
    finally:
        os.close(place)
    return os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=parent)
