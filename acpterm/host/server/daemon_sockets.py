"""Opens the sockets of a daemon, for agents and for the user's clients, and stores them.

acpterm binds each socket itself, unless the service manager has handed the socket over. The keeper
holds the sockets, and the lock files of the sockets that acpterm has bound. From there, later
workers restore them. So a connection that is made while no worker is running waits for the next
worker. A worker that ends the daemon removes the bound sockets; a worker that dies does not.

The agents' socket is locked first, since this lock prevents a second daemon. The agents' socket is
bound last: a client that has started the daemon waits until the agents' socket exists, and may then
use the user's socket, too. For the same reason, if both socket files were removed, the user's
socket is bound again before the agents' socket.

At most one daemon listens on a path. The daemon that holds the lock on `PATH.lock` owns the path:
it may replace the socket file there, and removes the file at its end. A daemon without the lock
changes no file. So the socket of a live daemon is never removed, and if two daemons start at the
same time, only one of them removes a stale socket file. If another daemon has replaced our lock
file by a file of its own, that file is not removed.

If another program, such as a cleaner of `/tmp`, removes the socket file, `listen_again` creates the
file again, unless another daemon owns the path by then.

Only the user may connect: the socket has mode 0600, in a directory that acpterm creates with mode
0700, and the uid of each peer is checked, since some systems ignore the mode of sockets.

A socket handed over by systemd belongs to systemd: it is neither locked nor removed.
"""

import contextlib
import errno
import fcntl
import os
import select
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, Self

import trio

from acpterm.config import Settings, agent_socket, user_socket
from acpterm.host.server.systemd import path_of
from acpterm.host.state.records import ListenRecord
from acpterm.host.state.store import LISTEN_PREFIX, StateStore, StoredEntry
from acpterm.runtime.unix_socket import ALREADY_LISTENS, ListenError, make_private_dir

# The keys of the lock files in the keeper's store. The keeper uses the first key itself.
_LOCKS: Final = {"agent": "lock", "user": "lock/user"}

BACKLOG: Final = 4096
"""How many connections may wait to be accepted. The system may set a lower limit
(`net.core.somaxconn`)."""


class UnixListener:
    """A listening socket: locked by `lock`, bound by `listen`, removed by `close`."""

    def __init__(self, path: str, pid: int) -> None:
        self.path = path
        self._pid = pid
        self._lock = -1
        self._inode: tuple[int, int] | None = None

    @classmethod
    def restored(cls, path: str, pid: int, inode: tuple[int, int], lock: int) -> Self:
        """Return the listener of the previous worker, from its `handover`."""
        listener = cls(path, pid)
        listener._inode, listener._lock = inode, lock
        return listener

    def handover(self) -> tuple[tuple[int, int], int]:
        """Return the socket file's device and inode, and the descriptor of the lock."""
        assert self._inode is not None  # noqa: S101  it listens, for the type checker
        return self._inode, self._lock

    def close(self) -> None:
        """Remove the socket file and the lock file, if they are still ours. Idempotent."""
        if self._inode is not None:
            with contextlib.suppress(OSError):
                found = os.lstat(self.path)
                if (found.st_dev, found.st_ino) == self._inode:
                    os.unlink(self.path)
            self._inode = None
        if self._lock >= 0:
            if self._is_lock_file(self._lock):
                with contextlib.suppress(OSError):
                    os.unlink(f"{self.path}.lock")
            os.close(self._lock)
            self._lock = -1

    def lock(self) -> None:
        """Take the lock, unless it was taken before. Raises `ListenError`."""
        if self._lock < 0:
            with self._naming_the_path():
                make_private_dir(os.path.dirname(os.path.abspath(self.path)))
                self._take_lock()

    def listen(self) -> socket.socket:
        """Take the lock, bind and listen. Raises `ListenError`."""
        self.lock()
        with self._naming_the_path():
            self._remove_stale()
            return self._bind()

    @contextlib.contextmanager
    def _naming_the_path(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = error.strerror or str(error)
            raise ListenError(f"cannot listen on {self.path}: {what}") from error

    def is_removed(self) -> bool:
        """Return whether our socket file is gone, and no program listens at its path."""
        # A file on which no program listens may be from a worker that bound the path again and died
        # before it could store the socket.
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
        """Bind and listen again after the socket file was removed. Raises `ListenError`."""
        before = self._lock
        is_ours = self._is_lock_file(before)
        with self._naming_the_path():
            make_private_dir(os.path.dirname(os.path.abspath(self.path)))
            if not is_ours:
                self._take_lock()
                os.close(before)
            self._remove_stale()
            return self._bind()

    def _is_lock_file(self, lock: int) -> bool:
        """Return whether the descriptor `lock` refers to the file that is now at `PATH.lock`."""
        try:
            found = os.lstat(f"{self.path}.lock")
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(lock))

    def _take_lock(self) -> None:
        name = f"{self.path}.lock"
        while True:
            lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            # Unless the lock is taken completely, the descriptor is closed, which unlocks the file.
            with contextlib.ExitStack() as stack:
                stack.callback(os.close, lock)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pid = os.read(lock, 20).decode(errors="replace").strip() or "unknown"
                    raise ListenError(
                        f"a daemon {ALREADY_LISTENS} on {self.path} (pid {pid}): "
                        "use it, end it, or choose another path with --socket"
                    ) from None
                # The previous owner may have removed the file between our open and our flock.
                if self._is_lock_file(lock):
                    os.ftruncate(lock, 0)
                    os.write(lock, f"{self._pid}\n".encode())
                    self._lock = lock
                    stack.pop_all()
                    return

    def _remove_stale(self) -> None:
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise ListenError(
                f"{self.path} is there and is no socket: remove it, or choose another --socket"
            )
        # systemd, or a program that does not use the lock, may listen on the path.
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
            # The umask gives the socket its mode from the start; chmod(2) would be too late.
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


class Listening:
    """The sockets of `agent` or `user`; `bound` is None if the service manager has handed them."""

    def __init__(
        self,
        kind: str,
        path: str,
        sockets: Sequence[socket.socket],
        bound: UnixListener | None,
        *,
        is_restored: bool = False,
    ) -> None:
        self.path: Final = path
        self.listeners: Final = [
            trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in sockets
        ]
        self.bound: Final = bound
        self.is_restored: Final = is_restored
        self._kind = kind

    def store(self, store: StateStore) -> None:
        """Store the socket and its lock, if acpterm has bound the socket."""
        if self.bound is None:
            return
        inode, lock = self.bound.handover()
        fds = [listener.socket.fileno() for listener in self.listeners]
        store.put(_LOCKS[self._kind], b"", (lock,))
        record = ListenRecord(path=self.path, inode=inode)
        store.put(f"{LISTEN_PREFIX}{self._kind}", record.encode(), fds)

    def rebind(self, store: StateStore) -> trio.SocketListener | None:
        """If the socket file was removed, listen again. Raises `ListenError` and `OSError`."""
        if self.bound is None or not self.bound.is_removed():
            return None
        sock = self.bound.listen_again()
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        before, self.listeners[:] = self.listeners[:], [listener]
        self.store(store)
        for old in before:
            # This ends the task that accepts connections from the old socket.
            old.socket.close()
        return listener

    def remove(self) -> None:
        if self.bound is not None:
            self.bound.close()


class Sockets:
    """All sockets that a daemon listens on."""

    def __init__(self, agent: Listening, user: Listening) -> None:
        self.agent: Final = agent
        self.user: Final = user
        self._kinds = agent, user

    def has_queued(self) -> bool:
        return has_queued([*self.agent.listeners, *self.user.listeners])

    def store(self, store: StateStore) -> None:
        for kind in self._kinds:
            if not kind.is_restored:
                kind.store(store)

    def remove(self, *, new_only: bool = False) -> None:
        """Remove the sockets that acpterm (with `new_only`: this worker) has bound."""
        for kind in self._kinds:
            if not (new_only and kind.is_restored):
                kind.remove()


def has_queued(listeners: Sequence[trio.SocketListener]) -> bool:
    """Return whether connections are waiting to be accepted."""
    poll = select.poll()
    for listener in listeners:
        poll.register(listener.socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def open_sockets(
    settings: Settings,
    records: Mapping[str, ListenRecord],
    entries: Mapping[str, StoredEntry],
    pid: int,
) -> Sockets:
    """Take the sockets in the keeper's store, and bind those that are missing."""
    # Those without a record were handed over by the service manager. Raises `ListenError`; what was
    # bound until then is removed.
    handed = [
        socket.socket(fileno=fd)
        for key, entry in entries.items()
        if key.startswith(LISTEN_PREFIX) and key not in records
        for fd in entry.fds
    ]
    # The user's socket is recognised by its path beside an agents' socket.
    user_paths = {user_socket(settings, path_of(sock)) for sock in handed}
    users = [sock for sock in handed if path_of(sock) in user_paths]
    agents = [sock for sock in handed if sock not in users]
    with ExitStack() as stack:

        def prepare(kind: str, path: str, given: list[socket.socket]) -> Listening | UnixListener:
            if record := records.get(f"{LISTEN_PREFIX}{kind}"):
                return _restored(kind, record, entries, pid)
            if given:
                return Listening(kind, path, given, None)
            own = UnixListener(path, pid)
            stack.callback(own.close)
            return own

        agent_path = (path_of(agents[0]) if agents else None) or agent_socket(settings)
        agent = prepare("agent", agent_path, agents)
        if isinstance(agent, UnixListener):
            agent.lock()
        user = _listen("user", prepare("user", user_socket(settings, agent.path), users))
        for listener in user.listeners:
            stack.callback(listener.socket.close)
        agent = _listen("agent", agent)
        stack.pop_all()
    return Sockets(agent, user)


def _listen(kind: str, prepared: Listening | UnixListener) -> Listening:
    if isinstance(prepared, Listening):
        return prepared
    return Listening(kind, prepared.path, [prepared.listen()], prepared)


def _restored(
    kind: str, record: ListenRecord, entries: Mapping[str, StoredEntry], pid: int
) -> Listening:
    lock = entries.get(_LOCKS[kind])
    held = lock.fds[0] if lock is not None and lock.fds else os.open(os.devnull, os.O_RDONLY)
    bound = UnixListener.restored(record.path, pid, record.inode, held)
    sockets = [socket.socket(fileno=fd) for fd in entries[f"{LISTEN_PREFIX}{kind}"].fds]
    return Listening(kind, record.path, sockets, bound, is_restored=True)
