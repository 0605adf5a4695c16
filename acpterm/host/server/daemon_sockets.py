"""Opens the sockets of a daemon, for agents and for the user's clients, and stores them.

acpterm binds each socket itself, unless the service manager has handed the socket over. The keeper
holds the sockets, and the lock files of the sockets that acpterm has bound. From there, later
workers restore them. So a connection that is made while no worker is running waits for the next
worker. A worker that ends the daemon removes the bound sockets; a worker that dies does not.

The agents' socket is locked first, since this lock prevents a second daemon. The agents' socket is
bound last: a client that has started the daemon waits until the agents' socket exists, and may then
use the user's socket, too. For the same reason, if both socket files were removed, the user's
socket is bound again before the agents' socket.
"""

import os
import select
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

import trio

from acpterm.config import Settings, agent_socket, user_socket
from acpterm.host.server.systemd import path_of
from acpterm.host.server.unix_listener import UnixListener
from acpterm.host.state.records import ListenRecord
from acpterm.host.state.store import LISTEN_PREFIX, StateStore, StoredEntry

# The keys of the lock files in the keeper's store. The keeper uses the first key itself.
_LOCKS: Final = {"agent": "lock", "user": "lock/user"}


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
