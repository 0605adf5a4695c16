"""The part of the keeper that handles the worker's messages, reports exits, and reaps orphans."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import errno
import os
import sys

from acpterm.keeper import ring_file
from acpterm.keeper.encodings import ENCODINGS
from acpterm.keeper.process.diagnostics import log
from acpterm.keeper.process.notify import (
    LEADER_PREFIX,
    MASTER_PREFIX,
    RING_PREFIX,
    TREES_NAME,
    Notifier,
)
from acpterm.keeper.process.store import EntryStore
from acpterm.keeper.programs import reading, spawn, system
from acpterm.keeper.programs.reading import Reader
from acpterm.keeper.programs.reaping import Child
from acpterm.keeper.programs.terminal import HeldTerminal
from acpterm.keeper.programs.terminals import HeldTerminals
from acpterm.keeper.protocol import ORPHANS_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from acpterm.keeper.process.link import Descriptors, Link
    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.programs.reaping import Exit
    from acpterm.keeper.protocol import Message

_RECHECK_S = 0.05
# Reaping lists all children, so orphans that exit within this time are reaped together.
_REAP_ORPHANS_S = 0.02
# Writing this to an eventfd adds 1 to its counter.
_ONE = (1).to_bytes(8, sys.byteorder)


class Keeper:
    """The part of a keeper that owns the terminals, and the entries that workers store.

    Each new worker is sent all terminals and entries, and from then on a report when a program
    exits or an output ends. An exit is detected by a pidfd, or by SIGCHLD.
    """

    def __init__(
        self, loop: Loop, *, embedded: bool, notifier: Notifier | None = None, pidfds: bool = True
    ) -> None:
        self._loop = loop
        self._notifier = Notifier(loop, {}) if notifier is None else notifier
        self._embedded = embedded
        self._pidfds = pidfds
        reader = Reader(loop, recoverable=self._notifier.stores)
        self.terminals = HeldTerminals(loop, reader, self._exited, self._closed)
        self.store = EntryStore()
        # To workers that were sent the state, and now get all reports.
        self._links: list[Link] = []
        self.worker_pids: set[int] = set()  # which the supervisor reaps
        self._is_reaping = False
        self._wake_worker = _event_channel()
        self._wake_keeper = _event_channel()
        loop.add_reader(self._wake_keeper[0], self._on_kick)
        loop.on_signal(_signal.SIGCHLD, self._child_signal)
        self._handlers: dict[str, Callable[[Message], None]] = {
            "spawn": self._spawn,
            "put": self._put,
            "delete": self._delete,
            "close": self._close,
            "forget": self._forget,
        }

    def receive(self, message: Message) -> None:
        """Handle a message of a worker. Unknown kinds are ignored: the worker may be newer."""
        handler = self._handlers.get(message.kind)
        if handler is not None:
            handler(message)

    def send_state(self, link: Link, *, takeovers: int) -> None:
        """Send a worker all terminals and entries, and from now on the reports."""
        self._links.append(link)
        events = self._wake_worker[0], self._wake_keeper[1]
        facts = os.getpid(), takeovers, self._embedded, self._notifier.stores
        link.send("welcome", *facts, fds=lambda: events)
        for terminal in self.terminals.by_name.values():
            state = terminal.name, terminal.child.pid, terminal.child.started, terminal.exit
            more = terminal.closed_end, terminal.session
            link.send("terminal", *state, *more, fds=terminal.descriptors)
        for key, entry in self.store.entries.items():
            link.send("entry", key, entry.value, fds=entry.descriptors)
        link.send("state_end")

    def has_state(self, link: Link) -> bool:
        return link in self._links

    def remove_link(self, link: Link) -> None:
        if link in self._links:
            self._links.remove(link)

    def wake(self) -> None:
        _notify(self._wake_worker[1])

    def before_wait(self) -> float | None:
        """Wake the worker for new output, resume PTYs; return how long the loop may wait."""
        terminals = self.terminals
        if terminals.disarm_waiting():
            self.wake()
        terminals.resume_stalled()
        return _RECHECK_S if terminals.needs_recheck else None

    def _on_kick(self) -> None:
        _clear(self._wake_keeper[0])
        self.terminals.resume_stalled()

    def _send(self, kind: str, *fields: object, fds: Descriptors | None = None) -> None:
        for link in self._links:
            link.send(kind, *fields, fds=fds)

    def _spawn(self, message: Message) -> None:
        request, name = message.fields[:2]
        try:
            terminal, way = self._start(message)
        except OSError as error:
            number = error.errno or errno.EIO
            self._send("refused", request, number, error.strerror or os.strerror(number))
            return
        except (ValueError, TypeError, OverflowError, ImportError) as error:
            self._send("refused", request, errno.EINVAL, f"the keeper cannot start this: {error}")
            return
        facts = terminal.child.pid, terminal.child.started, way, terminal.session
        self._send("spawned", request, name, *facts, fds=terminal.descriptors)

    def _start(self, message: Message) -> tuple[HeldTerminal, str]:
        """Start the program of a `spawn` message; return its terminal, and how it was started.

        Raises `OSError`; `ValueError`, `TypeError` or `OverflowError` for an invalid field.
        """
        # The ring comes before the child, so that a failure leaves no program behind.
        _, name, program, cols, rows, ring_size, record = message.fields[:7]
        encoding = message.fields[7] if len(message.fields) > 7 else "utf-8"
        if message.cut:
            raise OSError(errno.EMFILE, "the keeper has no descriptor left")
        if name in self.terminals.by_name:
            raise OSError(errno.EEXIST, f"there is a terminal of the name {name}")
        cgroup = message.fds[0] if message.fds else None
        ring_fd, mapped = ring_file.create_ring(ring_size)
        try:
            self._write_record(mapped, name, record)
            if number := ENCODINGS.index(encoding):
                mapped.header[ring_file.ENCODING] = number
                # Here an error refuses the terminal; in a read it would end the keeper.
                mapped.decoder = reading.new_decoder(number)
            pid, master, leader, way = spawn.spawn(program, cols, rows, cgroup)
        except BaseException:
            mapped.close()
            os.close(ring_fd)
            raise
        started = system.started_at(pid)
        mapped.header[ring_file.PID] = pid
        mapped.header[ring_file.STARTED] = round(started * 1e6)
        mapped.header[ring_file.SESSION] = 0 if leader is None else leader.pid
        self.store.put(_record_key(name), record, [])
        child = Child(pid, started, system.open_pidfd(pid) if self._pidfds else None)
        self._notifier.store(RING_PREFIX + name, ring_fd)
        self._notifier.store(MASTER_PREFIX + name, master)
        if leader is not None:
            self._notifier.store(LEADER_PREFIX + name, leader.socket_fd)
        return HeldTerminal(self.terminals, name, child, (master, leader), (ring_fd, mapped)), way

    def _put(self, message: Message) -> None:
        key, value = message.fields[:2]
        if message.cut:
            log(f"{key} was not stored: the keeper has no descriptor left")
            return
        fds = message.take_fds()
        self.store.put(key, value, fds)
        if key == TREES_NAME and fds and not self._notifier.has_stored(TREES_NAME):
            self._notifier.store(TREES_NAME, fds[0])
        if key.startswith("t/"):
            terminal = self.terminals.by_name.get(key[2:])
            # The record in a ring is only read by a new keeper that gets the ring from the service
            # manager. The ring of a closed terminal is not mapped.
            if terminal is not None and (terminal.ring is not None or self._notifier.stores):
                mapped = terminal.ring or ring_file.map_ring(terminal.ring_fd)
                self._write_record(mapped, terminal.name, value)
                if mapped is not terminal.ring:
                    mapped.close()

    def _write_record(self, mapped: ring_file.RingFile, name: str, record: bytes) -> None:
        if not mapped.write_record(record) and self._notifier.stores:
            log(
                f"the state of {name} does not fit into its ring ({len(record)} bytes): a new"
                " keeper will not have it"
            )

    def _delete(self, message: Message) -> None:
        self.store.delete(message.fields[0])

    def _close(self, message: Message) -> None:
        name = message.fields[0]
        terminal = self.terminals.by_name.get(name)
        if terminal is not None:
            self._remove_pty(name)
            terminal.close_master()

    def _forget(self, message: Message) -> None:
        name = message.fields[0]
        terminal = self.terminals.by_name.get(name)
        if terminal is not None:
            self._remove_pty(name)
            self._notifier.remove(RING_PREFIX + name)
            if terminal.exit is None and terminal.child.exists():
                _kill_group(terminal.child.pid)
            terminal.forget()
        self.store.delete(_record_key(name))
        self.store.delete(f"e/{name}")

    def _exited(self, terminal: HeldTerminal, report: Exit) -> None:
        # An orphan of a program that is no child of this keeper is none, either.
        orphans = None if report[0] is None else self._orphans()
        if orphans is not None and len(orphans) > ORPHANS_MAX:
            orphans = None
        self._send("exited", terminal.name, *report, orphans)

    def _closed(self, terminal: HeldTerminal, end: int) -> None:
        self._remove_pty(terminal.name)
        self._send("closed", terminal.name, end)

    def _remove_pty(self, name: str) -> None:
        self._notifier.remove(MASTER_PREFIX + name)
        self._notifier.remove(LEADER_PREFIX + name)

    def _child_signal(self) -> None:
        for terminal in tuple(self.terminals.by_pid.values()):
            terminal.check_child()
        self.terminals.reap_leaders()
        if not self._is_reaping:
            self._is_reaping = True
            self._loop.call_later(_REAP_ORPHANS_S, self._reap_orphans)

    def _reap_orphans(self) -> None:
        """Reap children that are neither programs of terminals, nor leaders, nor workers."""
        self._is_reaping = False
        for pid in self._orphans() or ():
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
        for terminal in tuple(self.terminals.held):
            terminal.close_if_unused()

    def _orphans(self) -> list[int] | None:
        children = system.children_of_this_process()
        if children is None:
            return None
        terminals = self.terminals
        found = set(children).difference(terminals.by_pid, terminals.leader_pids, self.worker_pids)
        return list(found)


def _record_key(name: str) -> str:
    return f"t/{name}"


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, _signal.SIGKILL)
        except OSError:
            continue


def _event_channel() -> tuple[int, int]:
    """Return a descriptor to wait on, and one that wakes the waiting process."""
    if sys.platform == "linux" and hasattr(os, "eventfd"):
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return fd, fd
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    return read_end, write_end


def _notify(fd: int) -> None:
    try:
        os.write(fd, _ONE)
    except BlockingIOError:
        return  # a wake-up is pending already


def _clear(fd: int) -> None:
    try:
        os.read(fd, 4096)
    except BlockingIOError:
        return
