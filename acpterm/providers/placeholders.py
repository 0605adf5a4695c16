"""Creates and removes placeholders: empty directories at protected names that do not exist.

A sandbox can only mount over a path that exists. So an empty directory is created at each protected
name of a workspace, even if the name is usually that of a file: git ignores an empty directory, and
rmdir(2) cannot remove anything but an empty directory. Only the placeholder of `commondir` in a
repository is a file. It contains a dot: to git, the dot means the repository itself. Placeholders
are recognised by their modification time.

A placeholder is in use while it is a mount point of a sandbox. If it were removed then, the kernel
would remove the mount too, and the program could create the name. So a sandbox holds a read lock on
its workspace (`bwrap --lock-file`) or on the placeholders, even while no acpterm runs. A sandbox
that this process has prepared may not hold its read lock yet, so `Placeholders` lists these
sandboxes. The clean-up of the last sandbox in a workspace removes the placeholders. If the machine
stops before that, they remain until the next terminal in the same workspace is cleaned up.

The methods are called in threads. Apart from the read locks, this process has a `threading.Lock`
for each workspace: only one thread at a time lists a sandbox of the workspace, or creates or
removes the workspace's placeholders. A workspace whose file system does not answer does not block
other workspaces.
"""

import contextlib
import fcntl
import os
import struct
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from acpterm.providers.provider import ProviderError
from acpterm.providers.workspace import (
    COMMON_DIR,
    PLACEHOLDER_MTIME_S,
    PROTECTED,
    PROTECTED_IN_GIT,
    Workspace,
    is_placeholder,
    read_start,
    repository_of,
    submodules_of,
)

_COMMON_DIR_TEXT: Final = b"."
# struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK: Final = "hhqqi"
_PATH_MAX: Final = 240


class _Sandboxes:
    """The tokens of a workspace's sandboxes; hold `lock` also to change placeholders."""

    def __init__(self) -> None:
        self.lock: Final = threading.Lock()
        self.tokens: Final[set[str]] = set()


class Placeholders:
    """Creates and removes placeholders in the workspaces of this process's sandboxes."""

    def __init__(self) -> None:
        self._workspaces: Final[dict[str, _Sandboxes]] = {}

    def protect(self, path: str) -> tuple[Workspace, str, list[str]]:
        """Create a sandbox's placeholders; return its workspace, token and placeholders."""
        # A name in a directory that the user cannot write to needs none: the program cannot create
        # it.
        real = os.path.realpath(path)
        _check_token(path, real)
        token = f"{os.urandom(4).hex()}:{real}"
        sandboxes = self._sandboxes(real)
        with sandboxes.lock:
            workspace = Workspace.of(real)
            sandboxes.tokens.add(token)
            try:
                return workspace, token, [one for one in workspace.missing if _create(one)]
            except OSError as error:
                self._remove(token, real, sandboxes)
                raise ProviderError(
                    f"{path}: cannot be protected as the workspace of a sandbox: {error}"
                ) from error

    def remove(self, token: str) -> None:
        """Remove the placeholders of an ended sandbox, unless another one uses them. Idempotent."""
        workspace = token.partition(":")[2]
        if os.path.isabs(workspace):
            sandboxes = self._sandboxes(workspace)
            with sandboxes.lock:
                self._remove(token, workspace, sandboxes)

    def _remove(self, token: str, workspace: str, sandboxes: _Sandboxes) -> None:
        sandboxes.tokens.discard(token)
        if not sandboxes.tokens:
            found = [path for path in _candidates(workspace) if is_placeholder(path)]
            if found and not any(map(_is_locked, (workspace, *found))):
                _remove(found)

    def _sandboxes(self, workspace: str) -> _Sandboxes:
        # `setdefault` is atomic. Entries are never removed, since a thread may wait for their lock.
        return self._workspaces.setdefault(workspace, _Sandboxes())


def _check_token(path: str, workspace: str) -> None:
    # A token contains the path; it must be UTF-8, and its length is limited.
    problem = None
    try:
        workspace.encode()
    except UnicodeEncodeError:
        problem = "its path is not UTF-8"
    if len(workspace) > _PATH_MAX:
        problem = f"its path is longer than {_PATH_MAX} characters"
    if problem is not None:
        raise ProviderError(
            f"{path!r}: cannot be protected as the workspace of a sandbox: {problem}: rename it"
        )


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
    """Create a placeholder; return whether it exists, False if the user cannot write there."""
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
    """Return whether a sandbox holds a lock on `path`; True if that cannot be queried."""
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
        # Remove only a placeholder: an empty directory, or a `commondir` with the original text.
        with contextlib.suppress(OSError):
            if os.path.basename(path) != COMMON_DIR:
                os.rmdir(path)
            elif read_start(path, len(_COMMON_DIR_TEXT) + 1) == _COMMON_DIR_TEXT:
                os.unlink(path)
