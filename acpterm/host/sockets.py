"""The sockets that a daemon listens on: handed over, bound, or taken over from the worker before.

They outlive the worker: the keeper holds each, with the lock file of one that was bound, so a
connection that is made while no worker runs waits for the next one. The worker that ends the daemon
removes what was bound.
"""

import os
import select
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, contextmanager
from collections.abc import Iterator
from typing import Final

import trio

from acpterm.config import Settings, agent_socket, user_socket
from acpterm.host.activation import path_of
from acpterm.host.listener import UnixListener
from acpterm.host.state.records import ListenRecord
from acpterm.host.state.store import LISTEN_PREFIX, LOCK_PREFIX, StateStore, StoredEntry

_AGENT: Final = "agent"
_USER: Final = "user"


class Listening:
    """The sockets of one kind, `agent` or `user`, and where they are."""

    def __init__(self, kind: str, path: str, sockets: Sequence[socket.socket]) -> None:
        self.path: Final = path
        self.listeners: Final = [
            trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in sockets
        ]
        self._kind = kind

    def store(self, store: StateStore, bound: UnixListener | None) -> None:
        """Have the keeper hold them; `bound` is what removes them at the end, if they are ours."""
        inode, lock = (None, -1) if bound is None else bound.handover()
        record = ListenRecord(path=self.path, inode=inode)
        fds = [listener.socket.fileno() for listener in self.listeners]
        store.put(f"{LISTEN_PREFIX}{self._kind}", record.encode(), fds)
        if lock >= 0:
            store.put(f"{LOCK_PREFIX}{self._kind}", b"", (lock,))


class Sockets:
    """What a daemon listens on."""

    def __init__(self, agent: Listening, user: Listening) -> None:
        self.agents: Final = agent.listeners
        self.users: Final = user.listeners
        self.agent_path: Final = agent.path
        self.user_path: Final = user.path

    def in_line(self) -> bool:
        """Whether there are connections that were not accepted yet."""
        look = select.poll()
        for listener in (*self.agents, *self.users):
            look.register(listener.socket.fileno(), select.POLLIN)
        return bool(look.poll(0))


@contextmanager
def open_sockets(
    settings: Settings,
    store: StateStore,
    handed: Sequence[socket.socket],
    records: Mapping[str, ListenRecord],
    pid: int,
) -> Iterator[Sockets]:
    """Listen for as long as the block lasts; then remove what was bound. Raises `ListenError`.

    `handed`: what the service manager has handed over; `records`: what the worker before has
    stored. `pid`: the daemon's.
    """
    # Which of them is the user's, its place beside one of the others says.
    theirs = {user_socket(settings, path_of(sock)) for sock in handed}
    users = [sock for sock in handed if path_of(sock) in theirs]
    agents = [sock for sock in handed if sock not in users]
    with ExitStack() as stack:

        def open_kind(kind: str, path: str, sockets: list[socket.socket]) -> Listening:
            record = records.get(f"{LISTEN_PREFIX}{kind}")
            if record is not None:
                return _restored(kind, record, store.entries, stack)
            bound = None
            if not sockets:
                bound = stack.enter_context(UnixListener(path, pid))
                sockets = [bound.listen()]
            listening = Listening(kind, path, sockets)
            listening.store(store, bound)
            return listening

        agent_path = (path_of(agents[0]) if agents else None) or agent_socket(settings)
        agent = open_kind(_AGENT, agent_path, agents)
        user = open_kind(_USER, user_socket(settings, agent.path), users)
        yield Sockets(agent, user)


def _restored(
    kind: str, record: ListenRecord, entries: Mapping[str, StoredEntry], stack: ExitStack
) -> Listening:
    fds = entries[f"{LISTEN_PREFIX}{kind}"].fds
    lock = entries.get(f"{LOCK_PREFIX}{kind}")
    if record.inode is not None:
        held = lock.fds[0] if lock is not None and lock.fds else os.open(os.devnull, os.O_RDONLY)
        stack.enter_context(UnixListener.restored(record.path, record.inode, held))
    return Listening(kind, record.path, [socket.socket(fileno=fd) for fd in fds])
