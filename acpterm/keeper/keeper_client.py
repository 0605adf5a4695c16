"""One worker's connection to its keeper, on trio.

Order: `connect`, which fills `terminals` and `entries`; `watch` for every terminal found; `ready`,
which waits until the keeper lets this worker publish; then `run`, in a nursery, for as long as the
worker lives. Reports about a terminal that is not yet watched wait for `watch`.

Nothing here waits for the keeper's socket: what does not fit is queued, and sent by `run`.
"""

import errno
import socket
from collections.abc import Callable, Sequence
from typing import Final

import outcome
import trio

from acpterm import __version__
from acpterm.keeper.connection import Connection
from acpterm.keeper.protocol import Message
from acpterm.keeper.reports import (
    Entry,
    Found,
    KeeperLostError,
    RestartError,
    Spawned,
    TerminalEvents,
    exit_report,
)
from acpterm.keeper.wakeups import WakeUps
from acpterm.pty.program import Program


class _Spawning:
    """A spawn whose answer is awaited, by a task unless that was cancelled."""

    def __init__(self, make: Callable[[Spawned], TerminalEvents]) -> None:
        self.make: Final = make
        self.task: trio.lowlevel.Task | None = trio.lowlevel.current_task()


class KeeperClient:
    """The worker's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.pid = 0
        """The keeper's."""
        self.takeovers = 0
        """How many workers there were before this one."""
        self.embedded = False
        self.stored = False
        """Whether programs outlive the keeper, since the service manager stores their terminals."""
        self.terminals: list[Found] = []
        self.entries: dict[str, Entry] = {}
        self._connection: Final = Connection(sock)
        self._wake_ups: Final = WakeUps()
        self._requests = 0
        self._spawning: dict[int, _Spawning] = {}
        self._restarting: dict[int, trio.lowlevel.Task] = {}
        self._watched: dict[str, TerminalEvents] = {}
        # Reports about terminals that were found and are not watched yet.
        self._pending_reports: dict[str, list[Callable[[TerminalEvents], None]]] = {}
        self._state_complete = False
        self._go_received = False
        self._terminated = False
        self._on_terminate: Callable[[], None] | None = None
        self._handlers: Final[dict[str, Callable[[Message], None]]] = {
            "welcome": self._welcome,
            "terminal": self._terminal,
            "entry": self._entry,
            "state_end": self._state_end,
            "go": self._go,
            "spawned": self._spawned,
            "refused": self._refused,
            "exited": self._exited,
            "closed": self._closed,
            "terminate": self._terminate,
            "restart_failed": self._restart_failed,
        }

    async def connect(self) -> None:
        """Receive the state: `terminals` and `entries`. Raises `KeeperLostError`."""
        self._connection.send("hello", __version__)
        await self._connection.receive_until(lambda: self._state_complete, self._dispatch)

    async def ready(self) -> None:
        """Report that the state is restored, and wait until this worker is the one that serves.

        Raises `KeeperLostError`.
        """
        self._connection.send("ready")
        await self._connection.receive_until(lambda: self._go_received, self._dispatch)

    async def run(self, *, on_terminate: Callable[[], None]) -> None:
        """Receive until cancelled. Raises `KeeperLostError` when the keeper is gone.

        `on_terminate` is called when a signal asks the daemon to end, once.
        """
        await trio.lowlevel.checkpoint()
        self._on_terminate = on_terminate
        if self._terminated:
            on_terminate()
        lost: KeeperLostError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._connection.flush_forever)
            nursery.start_soon(self._wake_ups.report_forever, self._wake)
            try:
                await self._connection.receive_until(lambda: False, self._dispatch)
            except KeeperLostError as error:
                lost = error
                self._fail_requests(error)
            nursery.cancel_scope.cancel()
        if lost is not None:
            raise lost

    def close(self) -> None:
        """Close the connection; no task may use it any more."""
        self._connection.close()
        self._wake_ups.close()

    def refuse(self, reason: str) -> None:
        """Report that this worker cannot take over: `refuses: …`. It is to end, without `ready`."""
        self._connection.send("refuse", reason)

    async def spawn(
        self,
        name: str,
        program: Program,
        *,
        cols: int,
        rows: int,
        ring_size: int,
        record: bytes,
        cgroup: int | None,
        make: Callable[[Spawned], TerminalEvents],
    ) -> TerminalEvents:
        """Start a program; return what `make` returns.

        `make` is called as soon as the answer is there, before any report about the terminal. The
        record is stored as entry `t/NAME` together with the start. Raises `OSError` when the keeper
        refuses, with the reason, and `KeeperLostError`. Cancelled, it leaves no program behind.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._require_keeper()
        request = self._new_request()
        fields = request, name, _plain(program), cols, rows, ring_size, record
        self._connection.send("spawn", *fields, fds=[] if cgroup is None else [cgroup])
        spawning = self._spawning[request] = _Spawning(make)

        def abandon(_raise: object) -> trio.lowlevel.Abort:
            spawning.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        made: TerminalEvents = await trio.lowlevel.wait_task_rescheduled(abandon)
        return made

    def watch(self, name: str, events: TerminalEvents) -> None:
        """Report about a terminal that was found, from now on and what came since."""
        self._watched[name] = events
        for report in self._pending_reports.pop(name, ()):
            report(events)

    def unwatch(self, name: str) -> None:
        """Report about a terminal no longer. Can be repeated."""
        self._watched.pop(name, None)
        self._pending_reports.pop(name, None)
        self._wake_ups.disarm(name)

    def arm(self, name: str, header: memoryview) -> None:
        """Have `wake` called once, when more is written to the ring with this header.

        The caller must look at `HEAD` once more after this call, before it waits.
        """
        self._wake_ups.arm(name, header)

    def disarm(self, name: str) -> None:
        """Undo `arm`; to be called before the ring is unmapped. Can be repeated."""
        self._wake_ups.disarm(name)

    def kick(self) -> None:
        """Notify the keeper that there is room again in a ring that was `STALLED`."""
        self._wake_ups.kick()

    def put(self, key: str, value: bytes, fds: Sequence[int] = ()) -> None:
        """Store an entry for a successor; replaces the one of that key. `fds` stay the caller's."""
        self._connection.send("put", key, value, fds=fds)

    def delete(self, key: str) -> None:
        """Delete an entry, if it is there."""
        self._connection.send("delete", key)

    @property
    def is_flushed(self) -> bool:
        """Whether all that was put has left this process."""
        return self._connection.is_flushed

    async def flushed(self) -> None:
        """Wait until what was put has left this process, and so survives it; mostly at once."""
        await self._connection.flushed()

    def close_master(self, name: str) -> None:
        """Close the keeper's descriptor of a terminal's PTY."""
        self._connection.send("close", name)

    def forget(self, name: str) -> None:
        """Have the keeper drop all it holds of a terminal; kills a program that still runs."""
        self.unwatch(name)
        self._connection.send("forget", name)

    def status(self, text: str) -> None:
        """Set the status line that the service manager shows."""
        self._connection.send("status", text)

    def alive(self) -> None:
        """Report that this worker's loop turns, for the service manager's watchdog."""
        self._connection.send("alive")

    def end(self) -> None:
        """Announce that the daemon ends: the keeper ends what is left once this worker has gone."""
        self._connection.send("end")

    async def restart(self) -> None:
        """Replace this worker by the installed version.

        Does not return when that succeeds: the process is killed. Raises `RestartError` when the
        new one did not come up, and `KeeperLostError`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._require_keeper()
        request = self._new_request()
        self._connection.send("restart", request)
        self._restarting[request] = trio.lowlevel.current_task()

        def abandon(_raise: object) -> trio.lowlevel.Abort:
            self._restarting.pop(request, None)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abandon)

    def _require_keeper(self) -> None:
        if self._connection.lost is not None:
            raise KeeperLostError(self._connection.lost)

    def _new_request(self) -> int:
        self._requests += 1
        return self._requests

    def _fail_requests(self, error: KeeperLostError) -> None:
        tasks = [spawning.task for spawning in self._spawning.values()]
        tasks += self._restarting.values()
        self._spawning.clear()
        self._restarting.clear()
        for task in tasks:
            if task is not None:
                trio.lowlevel.reschedule(task, outcome.Error(KeeperLostError(*error.args)))

    def _wake(self, name: str) -> None:
        if name in self._watched:
            self._watched[name].wake()

    def _dispatch(self, message: Message) -> None:
        """Act on a message. Fields beyond the known ones are ignored: the keeper may be newer."""
        handler = self._handlers.get(message.kind)
        if handler is not None:
            handler(message)

    def _welcome(self, message: Message) -> None:
        self.pid, self.takeovers, self.embedded, self.stored = message.fields[:4]
        self._wake_ups.open(*message.take_fds())

    def _terminal(self, message: Message) -> None:
        name, pid, started, report, closed_end = message.fields[:5]
        ring, master = _ring_and_master(message)
        ended = None if report is None else exit_report(*report)
        self.terminals.append(Found(name, pid, started, master, ring, ended, closed_end))
        self._pending_reports[name] = []

    def _entry(self, message: Message) -> None:
        key, value = message.fields[:2]
        self.entries[key] = Entry(value, tuple(message.take_fds()))

    def _state_end(self, _message: Message) -> None:
        self._state_complete = True

    def _go(self, _message: Message) -> None:
        self._go_received = True

    def _spawned(self, message: Message) -> None:
        request, name, pid, started, way = message.fields[:5]
        spawning = self._spawning.pop(request, None)
        task = None if spawning is None else spawning.task
        if spawning is None or task is None:
            self.forget(name)
        elif message.cut:
            self.forget(name)
            refusal = OSError(errno.EMFILE, "the worker has no descriptor left")
            trio.lowlevel.reschedule(task, outcome.Error(refusal))
        else:
            ring, master = _ring_and_master(message)
            made = outcome.capture(spawning.make, Spawned(name, pid, started, master, ring, way))
            if isinstance(made, outcome.Value):
                self._watched[name] = made.value
            else:
                self.forget(name)
            trio.lowlevel.reschedule(task, made)

    def _refused(self, message: Message) -> None:
        request, number, reason = message.fields[:3]
        spawning = self._spawning.pop(request, None)
        if spawning is not None and spawning.task is not None:
            trio.lowlevel.reschedule(spawning.task, outcome.Error(OSError(number, reason)))

    def _exited(self, message: Message) -> None:
        report = exit_report(*message.fields[1:6])
        self._deliver(message.fields[0], lambda events: events.exited(report))

    def _closed(self, message: Message) -> None:
        name, end = message.fields[:2]
        self._deliver(name, lambda events: events.closed(end))

    def _deliver(self, name: str, report: Callable[[TerminalEvents], None]) -> None:
        if name in self._watched:
            report(self._watched[name])
        elif name in self._pending_reports:
            self._pending_reports[name].append(report)

    def _terminate(self, _message: Message) -> None:
        if not self._terminated:
            self._terminated = True
            if self._on_terminate is not None:
                self._on_terminate()

    def _restart_failed(self, message: Message) -> None:
        request, reason = message.fields[:2]
        task = self._restarting.pop(request, None)
        if task is not None:
            trio.lowlevel.reschedule(task, outcome.Error(RestartError(reason)))


def _plain(program: Program) -> tuple[object, ...]:
    """Return the program as marshal takes it: tuples, lists and dicts, and no subclasses."""
    argv, env, cwd, umask, rlimits, otherwise = program
    limits = [tuple(limit) for limit in rlimits]
    return list(argv), dict(env), cwd, umask, limits, otherwise and list(otherwise)


def _ring_and_master(message: Message) -> tuple[int, int | None]:
    fds = message.take_fds()
    return fds[0], fds[1] if len(fds) > 1 else None
