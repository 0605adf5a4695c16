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
from acpterm.host.activation import path_of
from acpterm.host.listener import UnixListener
from acpterm.host.state.records import ListenRecord
from acpterm.host.state.store import LISTEN_PREFIX, StateStore, StoredEntry

# The keys of the lock files, of which the keeper knows the first.
_LOCKS: Final = {"agent": "lock", "user": "lock/user"}


class Listening:
    """The sockets of one kind, `agent` or `user`; `bound` if they were bound here or before."""

    def __init__(
        self, kind: str, path: str, sockets: Sequence[socket.socket], bound: UnixListener | None
    ) -> None:
        self.path: Final = path
        self.listeners: Final = [
            trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in sockets
        ]
        self._kind = kind
        self._bound = bound

    @property
    def is_bound(self) -> bool:
        """Whether acpterm has bound them, and removes them at the end."""
        return self._bound is not None

    def store(self, store: StateStore) -> None:
        """Have the keeper hold them."""
        inode, lock = (None, -1) if self._bound is None else self._bound.handover()
        record = ListenRecord(path=self.path, inode=inode)
        fds = [listener.socket.fileno() for listener in self.listeners]
        if lock >= 0:
            store.put(_LOCKS[self._kind], b"", (lock,))
        store.put(f"{LISTEN_PREFIX}{self._kind}", record.encode(), fds)

    def remove(self) -> None:
        """Remove what was bound."""
        if self._bound is not None:
            self._bound.close()


class Sockets:
    """What a daemon listens on. `is_restored`: whether the worker before has stored it."""

    def __init__(self, agent: Listening, user: Listening, *, is_restored: bool) -> None:
        self._kinds = agent, user
        self.is_restored: Final = is_restored
        self.agents: Final = agent.listeners
        self.users: Final = user.listeners
        self.agent_path: Final = agent.path
        self.is_handed: Final = not agent.is_bound
        self.user_path: Final = user.path

    def has_queued(self) -> bool:
        """Whether there are connections that were not accepted yet."""
        return has_queued([*self.agents, *self.users])

    def store(self, store: StateStore) -> None:
        """Have the keeper hold them, unless it does already."""
        if not self.is_restored:
            for kind in self._kinds:
                kind.store(store)

    def remove(self) -> None:
        """Remove what was bound: the daemon ends."""
        for kind in self._kinds:
            kind.remove()


def has_queued(listeners: Sequence[trio.SocketListener]) -> bool:
    """Whether there are connections to some of `listeners` that were not accepted yet."""
    look = select.poll()
    for listener in listeners:
        look.register(listener.socket.fileno(), select.POLLIN)
    return bool(look.poll(0))


def open_sockets(
    settings: Settings,
    handed: Sequence[socket.socket],
    records: Mapping[str, ListenRecord],
    entries: Mapping[str, StoredEntry],
    pid: int,
) -> Sockets:
    """Listen. Raises `ListenError`; then nothing is left.

    `handed`: what the service manager has handed over; `records` and `entries`: what the worker
    before has stored. `pid`: the daemon's.
    """
    if len(records) == len(_LOCKS):
        agent, user = (_restored(kind, records, entries) for kind in _LOCKS)
        return Sockets(agent, user, is_restored=True)
    # Which of them is the user's, its place beside one of the others says.
    theirs = {user_socket(settings, path_of(sock)) for sock in handed}
    users = [sock for sock in handed if path_of(sock) in theirs]
    agents = [sock for sock in handed if sock not in users]
    agent_path = (path_of(agents[0]) if agents else None) or agent_socket(settings)
    with ExitStack() as stack:
        opened = []
        for kind, path, given in (
            ("agent", agent_path, agents),
            ("user", user_socket(settings, agent_path), users),
        ):
            bound = None
            if not given:
                bound = UnixListener(path, pid)
                stack.callback(bound.close)
            sockets = [bound.listen()] if bound else given
            opened.append(Listening(kind, path, sockets, bound))
        stack.pop_all()
    return Sockets(*opened, is_restored=False)


def _restored(
    kind: str, records: Mapping[str, ListenRecord], entries: Mapping[str, StoredEntry]
) -> Listening:
    record = records[f"{LISTEN_PREFIX}{kind}"]
    sockets = [socket.socket(fileno=fd) for fd in entries[f"{LISTEN_PREFIX}{kind}"].fds]
    bound = None
    if record.inode is not None:
        lock = entries.get(_LOCKS[kind])
        held = lock.fds[0] if lock is not None and lock.fds else os.open(os.devnull, os.O_RDONLY)
        bound = UnixListener.restored(record.path, record.inode, held)
    return Listening(kind, record.path, sockets, bound)
