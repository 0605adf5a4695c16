"""Removes a directory in which a sandboxed program has created whatever it could.

The tree may be deeper than the recursion limit, its paths longer than the kernel accepts, and its
directories without permissions. So each directory below is moved to the top before it is emptied:
no path has more than two components, and two file descriptors are open at a time.
"""

import contextlib
import os
import stat
from typing import Final

_DIRECTORY: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Only Linux has it, and only there are such trees made.
_PATH: Final[int] = getattr(os, "O_PATH", 0)
_NAME_BYTES: Final = 16


def remove_tree(path: str) -> None:
    """Remove a directory with all that is in it, as far as that is possible. Does not raise."""
    with contextlib.suppress(OSError):
        top = _open(path, None)
        try:
            names = _emptied(top, top)
            while names:
                name = names.pop()
                # What cannot be removed stays; the other directories are removed nevertheless.
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
    """Remove the files of a directory, and move its directories to `top`; return their names."""
    found = []
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
                os.unlink(name, dir_fd=directory)
            elif directory == top:
                found.append(name)
            else:
                # A directory can be moved to another one only if it is writable itself.
                os.close(_open(name, directory))
                fresh = os.urandom(_NAME_BYTES).hex()
                os.rename(name, fresh, src_dir_fd=directory, dst_dir_fd=top)
                found.append(fresh)
    return found


def _open(name: str, parent: int | None) -> int:
    """Open a directory, after giving its owner all permissions."""
    place = os.open(name, _PATH | _DIRECTORY, dir_fd=parent)
    try:
        # chmod(2) would follow a link that has replaced the directory.
        os.chmod(f"/proc/self/fd/{place}", stat.S_IRWXU)
    finally:
        os.close(place)
    return os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=parent)
