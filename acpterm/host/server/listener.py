"""The Unix socket that the daemon listens on, and who may connect to it.

Rule: one daemon a path. Whoever holds the lock on `PATH.lock` owns the path: it may replace a
socket that is there and removes it at the end. Without the lock nothing is touched, so a live
daemon's socket is never taken away, and two that start at once cannot both think it stale. A lock
file that another daemon has put in the place of ours is left alone.

A socket file that something else has removed (a cleaner of `/tmp`, say) is made again by
`listen_again`, unless another daemon has taken the place meanwhile.

The socket is for its user alone: 0600, in a folder that is 0700 where acpterm makes it, and each
peer's uid is checked, since modes do not bind everywhere.

A socket handed over by systemd is somebody else's: it is neither locked nor removed.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
from typing import Final, Self

ALREADY_LISTENS: Final = "already listens"
"""What the message of a `ListenError` says when somebody else does."""


BACKLOG: Final = 4096
"""Connections that wait to be accepted, as far as the system allows (`net.core.somaxconn`)."""


class ListenError(Exception):
    """The path cannot be listened on; the message says why, and what to do."""


class UnixListener:
    """A bound, listening socket at `path`, until `close` removes it.

    `pid`: the daemon's, for those who find it locked.
    """

    def __init__(self, path: str, pid: int) -> None:
        self.path = path
        self._pid = pid
        self._lock = -1
        self._inode: tuple[int, int] | None = None

    @classmethod
    def restored(cls, path: str, inode: tuple[int, int], lock: int) -> Self:
        """Return the listener of a worker before, from what `handover` has returned."""
        listener = cls(path, os.getpid())
        listener._inode, listener._lock = inode, lock
        return listener

    def handover(self) -> tuple[tuple[int, int], int]:
        """Return what a successor needs to remove it at the end: its inode, and the lock file."""
        assert self._inode is not None  # noqa: S101  it listens, for the type checker
        return self._inode, self._lock

    def close(self) -> None:
        """Remove the socket, if it is still ours, and the lock. Can be repeated."""
        if self._inode is not None:
            with contextlib.suppress(OSError):
                found = os.lstat(self.path)
                if (found.st_dev, found.st_ino) == self._inode:
                    os.unlink(self.path)
            self._inode = None
        if self._lock >= 0:
            if self._is_lock_ours():
                with contextlib.suppress(OSError):
                    os.unlink(f"{self.path}.lock")
            os.close(self._lock)
            self._lock = -1

    def listen(self) -> socket.socket:
        """Bind and listen. Raises `ListenError`."""
        directory = os.path.dirname(os.path.abspath(self.path))
        try:
            make_private_dir(directory)
            self._take_lock()
            self._remove_stale()
            return self._bind()
        except OSError as error:
            what = error.strerror or str(error)
            raise ListenError(f"cannot listen on {self.path}: {what}") from error

    def is_removed(self) -> bool:
        """Return whether our socket is not at the path any more, and no other that is listened on.

        What another program listens on is left alone. A socket on which nobody listens may have
        been bound by a worker that died before it could hand it over.
        """
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return self._inode is not None
        except OSError:
            return False
        if (found.st_dev, found.st_ino) == self._inode or not stat.S_ISSOCK(found.st_mode):
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            return probe.connect_ex(self.path) == errno.ECONNREFUSED

    def listen_again(self) -> socket.socket:
        """Bind and listen at a path where the file was removed.

        Raises `ListenError` if that cannot be, or another daemon has the lock now.
        """
        before = self._lock
        is_ours = self._is_lock_ours()
        try:
            make_private_dir(os.path.dirname(os.path.abspath(self.path)))
            if not is_ours:
                self._take_lock()
                os.close(before)
            self._remove_stale()
            return self._bind()
        except OSError as error:
            what = error.strerror or str(error)
            raise ListenError(f"cannot listen on {self.path}: {what}") from error

    def _is_lock_ours(self) -> bool:
        try:
            found = os.lstat(f"{self.path}.lock")
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._lock))

    def _take_lock(self) -> None:
        name = f"{self.path}.lock"
        while True:
            lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.read(lock, 20).decode(errors="replace").strip() or "unknown"
                os.close(lock)
                raise ListenError(
                    f"a daemon {ALREADY_LISTENS} on {self.path} (pid {pid}): "
                    "use it, end it, or choose another path with --socket"
                ) from None
            # Its last owner may have removed the file between our open and our lock.
            with contextlib.suppress(OSError):
                if os.stat(name).st_ino == os.fstat(lock).st_ino:
                    break
            os.close(lock)
        os.ftruncate(lock, 0)
        os.write(lock, f"{self._pid}\n".encode())
        self._lock = lock

    def _remove_stale(self) -> None:
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise ListenError(
                f"{self.path} is there and is no socket: remove it, or choose another --socket"
            )
        # Somebody without our lock may listen there: another program, or a handed socket.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(self.path)
            except (ConnectionRefusedError, FileNotFoundError):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path)
                return
            except TimeoutError:
                pass
        raise ListenError(
            f"another program {ALREADY_LISTENS} on {self.path}: end it, or choose another --socket"
        )

    def _bind(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The mode of the socket is that of the moment it is made: there is no gap.
            before = os.umask(0o177)
            try:
                sock.bind(self.path)
            finally:
                os.umask(before)
            found = os.lstat(self.path)
            self._inode = (found.st_dev, found.st_ino)
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
        return sock


def make_private_dir(directory: str) -> None:
    """Make `directory` 0700 if it is missing; refuse one that others may write to."""
    if not os.path.isdir(directory):
        parent = os.path.dirname(directory)
        if parent != directory:
            os.makedirs(parent, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
    found = os.stat(directory)
    if os.path.islink(directory) and os.lstat(directory).st_uid not in (os.geteuid(), 0):
        raise OSError(errno.EPERM, f"{directory} is somebody else's link")
    # Also with the sticky bit, as in /tmp: others could put a FIFO where the log is to be.
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        advice = "" if mode & stat.S_ISVTX else f"run chmod 700 {directory}, or "
        raise ListenError(
            f"{directory} can be written to by others (mode {mode:o}), who could put files where "
            f"the socket, its lock and its log are to be: {advice}choose a --socket in a directory "
            "of your own"
        )
    if found.st_uid not in (os.geteuid(), 0):
        raise OSError(errno.EPERM, f"{directory} belongs to uid {found.st_uid}")
