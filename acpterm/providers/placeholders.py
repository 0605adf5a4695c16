"""Placeholders: what stands in a workspace for a protected name that does not exist.

A sandbox can only mount over a path that exists. So an empty directory is created at each protected
name, whatever the name stands for: git ignores an empty directory, and its removal by rmdir(2)
cannot remove anything else. Only `commondir` in a repository gets a file: a dot, which makes git
use that repository itself. A placeholder is recognised by its modification time.

A placeholder is in use while a sandbox has it as a mount point: if it were removed, the kernel
would remove the mount too, and the program could create the name. So a sandbox holds a read lock on
its workspace (`bwrap --lock-file`) or on the placeholders, also while no acpterm runs.
`Placeholders` counts the sandboxes that this process has prepared, which may not hold their locks
yet. The last clean-up removes the placeholders. If the machine stops before that, they remain,
until the next terminal in the same workspace is cleaned up.
"""

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterable, Sequence
from typing import Final

import trio

from acpterm.providers.provider import ProviderError
from acpterm.providers.workspace import (
    COMMON_DIR,
    PLACEHOLDER_MTIME_S,
    PROTECTED,
    PROTECTED_IN_GIT,
    is_placeholder,
    read_start,
    repository_of,
    submodules_of,
)

_COMMON_DIR_TEXT: Final = b"."
# struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK: Final = "hhqqi"
_PATH_MAX: Final = 240


class Placeholders:
    """The placeholders of the workspaces in which this process has prepared sandboxes.

    Hold `lock` from the inspection of a workspace (`Workspace.of`) until `create` has returned, and
    for `remove`: a placeholder that was found must not be removed in between.
    """

    def __init__(self) -> None:
        self.lock: Final = trio.Lock()
        self._workspaces: dict[str, str] = {}

    def create(self, workspace: str, missing: Iterable[str]) -> tuple[str, list[str]]:
        """Create the placeholders of a sandbox; return the token for `remove`, and their paths.

        A path of which the user cannot create the parent's entry is left out: the sandboxed program
        cannot create it either. Raises `ValueError` if no token can hold the path, and `OSError`.
        """
        try:
            workspace.encode()
        except UnicodeEncodeError:
            raise ValueError("its path is not UTF-8") from None
        if len(workspace) > _PATH_MAX:
            raise ValueError(f"its path is longer than {_PATH_MAX} characters")
        token = f"{os.urandom(4).hex()}:{workspace}"
        self._workspaces[token] = workspace
        try:
            return token, [path for path in missing if _create(path)]
        except OSError:
            self.remove(token)
            raise

    def remove(self, token: str) -> None:
        """Remove the placeholders of a sandbox whose processes have ended. Idempotent.

        Does nothing while another sandbox uses the workspace. `token` may be of an earlier process.
        """
        workspace = self._workspaces.pop(token, None) or token.partition(":")[2]
        if os.path.isabs(workspace) and workspace not in self._workspaces.values():
            found = [path for path in _candidates(workspace) if is_placeholder(path)]
            if found and not any(map(_is_locked, (workspace, *found))):
                _remove(found)


def _candidates(workspace: str) -> Sequence[str]:
    """Return the paths at which a placeholder may be, the innermost first."""
    git = os.path.join(workspace, ".git")
    repository = (repository_of(git, workspace) if os.path.isfile(git) else None) or git
    submodules: Sequence[str] = ()
    with contextlib.suppress(ProviderError):
        submodules, _ = submodules_of(repository)
    found = [
        os.path.join(one, name) for one in (repository, *submodules) for name in PROTECTED_IN_GIT
    ]
    return [*reversed(found), *(os.path.join(workspace, name) for name in PROTECTED)]


def _create(path: str) -> bool:
    """Create the placeholder `path`; return whether the path exists now."""
    try:
        if os.path.basename(path) == COMMON_DIR:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            fd = os.open(path, flags, 0o444)
            try:
                os.write(fd, _COMMON_DIR_TEXT)
                os.utime(fd, (PLACEHOLDER_MTIME_S, PLACEHOLDER_MTIME_S))
            finally:
                os.close(fd)
        else:
            os.mkdir(path, 0o755)
            os.utime(path, (PLACEHOLDER_MTIME_S, PLACEHOLDER_MTIME_S), follow_symlinks=False)
    except FileExistsError:  # created by another process since it was found to be missing
        return True
    except OSError:
        if os.access(os.path.dirname(path), os.W_OK):
            raise
        return False
    return True


def _is_locked(path: str) -> bool:
    """Return whether a sandbox holds a lock on `path`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, question)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    except OSError:
        return True
    finally:
        os.close(fd)


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        # Either fails if the path is no longer what was created.
        with contextlib.suppress(OSError):
            if os.path.basename(path) != COMMON_DIR:
                os.rmdir(path)
            elif read_start(path, len(_COMMON_DIR_TEXT) + 1) == _COMMON_DIR_TEXT:
                os.unlink(path)
