"""Descriptors that the service manager passes to the keeper: sockets and stored descriptors.

Implements sd_listen_fds(3): `LISTEN_FDS` descriptors from 3 on, if `LISTEN_PID` is this process,
with the names in `LISTEN_FDNAMES`.

- PTY masters, sockets of leaders, and rings that a previous keeper has stored with the service
  manager (see `notify`) become terminals again. Their programs are not children of this process, so
  their exit is detected by a pidfd or, if the system has no pidfds, when the PTY hangs up. Their
  exit status is unknown, unless the previous keeper has written it into the ring's header.
- The descriptor of the control groups' directory becomes the entry `trees` of the store again.
  While the descriptor is open, it holds the daemon's lock on the directory. (An *entry* is a value
  with descriptors that the keeper stores for the worker.)
- All other descriptors are for the worker: they become entries `listen/0`, `listen/1`, …, whose
  value is the descriptor's name.
"""

from __future__ import annotations

import os

from acpterm.keeper import ring_file
from acpterm.keeper.process.notify import LEADER_PREFIX, MASTER_PREFIX, RING_PREFIX, TREES_NAME
from acpterm.keeper.programs import system
from acpterm.keeper.programs.leader import Leader
from acpterm.keeper.programs.reaping import Child, read_exit
from acpterm.keeper.programs.terminal import HeldTerminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from acpterm.keeper.process.notify import Notifier
    from acpterm.keeper.process.store import EntryStore
    from acpterm.keeper.programs.terminals import HeldTerminals

_LISTEN_FDS_START = 3
_PREFIXES = (RING_PREFIX, MASTER_PREFIX, LEADER_PREFIX)


def adopt_all(
    environ: Mapping[str, str], terminals: HeldTerminals, store: EntryStore, notifier: Notifier
) -> None:
    """Adopt all descriptors that the service manager has passed to this process.

    Makes the manager remove the rings and masters that cannot be used.
    """
    stored: dict[str, dict[str, int]] = {prefix: {} for prefix in _PREFIXES}
    others = 0
    for name, fd in _listen_fds(environ):
        kind, dot, terminal = name.partition(".")
        if kind + dot in stored:
            notifier.adopt(name)
            stored[kind + dot][terminal] = fd
        elif name == TREES_NAME:
            notifier.adopt(name)
            path = os.readlink(f"/proc/self/fd/{fd}")
            store.put(TREES_NAME, os.fsencode(path), [fd])
        else:
            store.put(f"listen/{others}", name.encode(), [fd])
            others += 1
    for name in {name: None for fds in stored.values() for name in fds}:
        ring, master, leader = (stored[prefix].get(name) for prefix in _PREFIXES)
        if ring is None or not _adopt(terminals, store, name, ring, (master, leader)):
            for prefix, unusable in zip(_PREFIXES, (ring, master, leader), strict=True):
                # Without its ring, a master cannot be used. Closing it sends the program a SIGHUP.
                if unusable is not None:
                    os.close(unusable)
                notifier.remove(prefix + name)


def _listen_fds(environ: Mapping[str, str]) -> list[tuple[str, int]]:
    count = environ.get("LISTEN_FDS", "")
    if environ.get("LISTEN_PID") != str(os.getpid()) or not count.isdigit():
        return []
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    fds = range(_LISTEN_FDS_START, _LISTEN_FDS_START + int(count))
    named_fds = []
    for index, fd in enumerate(fds):
        try:
            os.set_inheritable(fd, False)
        except OSError:
            continue  # a process between the service manager and this one has closed it
        named_fds.append((names[index] if index < len(names) else "unknown", fd))
    return named_fds


def _adopt(
    terminals: HeldTerminals,
    store: EntryStore,
    name: str,
    ring_fd: int,
    pty: tuple[int | None, int | None],
) -> bool:
    try:
        mapped = ring_file.map_ring(ring_fd)
    except (ring_file.RingError, OSError, ValueError):
        return False
    master, leader_fd = pty
    header = mapped.header
    mapped.recover()
    header[ring_file.STALLED] = header[ring_file.ARMED] = 0
    store.put(f"t/{name}", mapped.record(), [])
    pid = header[ring_file.PID]
    child = Child(pid, header[ring_file.STARTED] / 1e6, system.open_pidfd(pid))
    leader = None
    if leader_fd is not None and master is not None:
        leader = Leader(header[ring_file.SESSION], leader_fd, is_child=False)
    elif leader_fd is not None:
        os.close(leader_fd)
    terminal = HeldTerminal(terminals, name, child, (master, leader), (ring_fd, mapped))
    report = read_exit(header)
    if report is not None:
        terminal.restore_exit(report)
    elif not child.exists():
        terminal.child_ended()
    return True
