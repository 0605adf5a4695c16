"""The sockets that a daemon listens on: handed over, bound, or taken over from the worker before.

They outlive the worker: the keeper holds each, with the lock file of one that was bound, so a
connection that is made while no worker runs waits for the next one. The worker that ends the daemon
removes what was bound; one that merely dies must not.
"""

import os
import select
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

import trio

from acpterm.config import Settings, agent_socket, user_socket
from acpterm.host.server.listener import UnixListener
from acpterm.host.server.systemd import path_of
from acpterm.host.state.records import ListenRecord
from acpterm.host.state.store import LISTEN_PREFIX, StateStore, StoredEntry

# The keys of the lock files, of which the keeper knows the first.
_LOCKS: Final = {"agent": "lock", "user": "lock/user"}


class Listening:
    """The sockets of one kind, `agent` or `user`.

    `bound` removes those that acpterm has bound, here or (`is_restored`) under a worker before; it
    is None if they were handed over.
    """

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
        """Have the keeper hold them, unless it has handed them out itself."""
        if self.bound is None:
            return
        inode, lock = self.bound.handover()
        fds = [listener.socket.fileno() for listener in self.listeners]
        store.put(_LOCKS[self._kind], b"", (lock,))
        record = ListenRecord(path=self.path, inode=inode)
        store.put(f"{LISTEN_PREFIX}{self._kind}", record.encode(), fds)

    def rebind(self, store: StateStore) -> trio.SocketListener | None:
        """Listen again if the socket file was removed; return the listener that is to be served.

        Raises `ListenError` if it was removed and cannot be made again.
        """
        if self.bound is None or not self.bound.is_removed():
            return None
        sock = self.bound.listen_again()
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        before, self.listeners[:] = self.listeners[:], [listener]
        self.store(store)
        for old in before:
            # This ends the task that accepts there.
            old.socket.close()
        return listener

    def remove(self) -> None:
        """Remove what was bound."""
        if self.bound is not None:
            self.bound.close()


class Sockets:
    """What a daemon listens on."""

    def __init__(self, agent: Listening, user: Listening) -> None:
        self.agent: Final = agent
        self.user: Final = user
        self._kinds = agent, user
        self.agents: Final = agent.listeners
        self.users: Final = user.listeners
        self.agent_path: Final = agent.path
        self.user_path: Final = user.path
        self.is_handed: Final = agent.bound is None

    def has_queued(self) -> bool:
        """Whether there are connections that were not accepted yet."""
        return has_queued([*self.agents, *self.users])

    def store(self, store: StateStore) -> None:
        """Have the keeper hold what was bound, unless it does already."""
        for kind in self._kinds:
            if not kind.is_restored:
                kind.store(store)

    def remove(self, *, new_only: bool = False) -> None:
        """Remove what was bound: the daemon ends. `new_only`: but for what it has from before."""
        for kind in self._kinds:
            if not (new_only and kind.is_restored):
                kind.remove()


def has_queued(listeners: Sequence[trio.SocketListener]) -> bool:
    """Whether there are connections to some of `listeners` that were not accepted yet."""
    look = select.poll()
    for listener in listeners:
        look.register(listener.socket.fileno(), select.POLLIN)
    return bool(look.poll(0))


def open_sockets(
    settings: Settings,
    records: Mapping[str, ListenRecord],
    entries: Mapping[str, StoredEntry],
    pid: int,
) -> Sockets:
    """Listen. Raises `ListenError`; then nothing is left that was bound here.

    `entries`: what the keeper holds, of which `records` are those of sockets that a worker before
    has bound; others the service manager has handed over. `pid`: the daemon's.
    """
    handed = [
        socket.socket(fileno=fd)
        for key, entry in entries.items()
        if key.startswith(LISTEN_PREFIX) and key not in records
        for fd in entry.fds
    ]
    # Which of them is the user's, its place beside one of the others says.
    theirs = {user_socket(settings, path_of(sock)) for sock in handed}
    users = [sock for sock in handed if path_of(sock) in theirs]
    agents = [sock for sock in handed if sock not in users]
    with ExitStack() as stack:

        def listen(kind: str, path: str, given: list[socket.socket]) -> Listening:
            if record := records.get(f"{LISTEN_PREFIX}{kind}"):
                return _restored(kind, record, entries)
            if given:
                return Listening(kind, path, given, None)
            bound = UnixListener(path, pid)
            stack.callback(bound.close)
            return Listening(kind, path, [bound.listen()], bound)

        agent_path = (path_of(agents[0]) if agents else None) or agent_socket(settings)
        agent = listen("agent", agent_path, agents)
        user = listen("user", user_socket(settings, agent.path), users)
        stack.pop_all()
    return Sockets(agent, user)


def _restored(kind: str, record: ListenRecord, entries: Mapping[str, StoredEntry]) -> Listening:
    lock = entries.get(_LOCKS[kind])
    held = lock.fds[0] if lock is not None and lock.fds else os.open(os.devnull, os.O_RDONLY)
    bound = UnixListener.restored(record.path, record.inode, held)
    sockets = [socket.socket(fileno=fd) for fd in entries[f"{LISTEN_PREFIX}{kind}"].fds]
    return Listening(kind, record.path, sockets, bound, is_restored=True)
