"""One worker's connection to its keeper, on trio: a method or a handler for each message.

Order of calls: `connect`, which fills `terminals` and `entries`; `watch` for each of `terminals`;
`ready`, which waits until the keeper lets this worker serve; then `run`, in a nursery, for as long
as the worker lives. Reports about a terminal (the exit of its program, the end of its output) are
kept until `watch` is called for the terminal.

An *entry* is a key with a value and descriptors. A worker stores entries in the keeper (`put`), and
its successor receives them.

No method waits for room in the keeper's socket: messages that do not fit are queued, and `run`
sends them.

Requests: a task waits for its response by `trio.lowlevel.wait_task_rescheduled` and not by a
`trio.Event`: when the task is cancelled, `wait_task_rescheduled` at once calls a function, which
records the cancellation. So when the keeper responds that it has started the program, the receiver
of the response knows that no task waits for the program, and makes the keeper kill it.

Wake-ups: one event descriptor for each direction reports new output to the worker, or free space in
a ring to the keeper. To request one for new output, `arm` sets the ring's header word `ARMED`. At
the next output the keeper clears the word and sends a wake-up. One may stand for several rings, so
`report_forever` then checks the header of every ring that was armed.
"""

import errno
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import outcome
import trio

from acpterm import __version__
from acpterm.keeper.keeper_socket import KeeperSocket
from acpterm.keeper.protocol import Message
from acpterm.keeper.reports import (
    Found,
    FoundEntry,
    KeeperLostError,
    RestartError,
    Spawned,
    TerminalEvents,
    exit_report,
)
from acpterm.keeper.ring_file import ARMED
from acpterm.pty.linux import request_short_slices
from acpterm.pty.program import Program

# More would fill the socket, and then the responses to all clients wait for the keeper (`flushed`).
# Those that were cancelled do not count.
_SPAWNS_MAX: Final = 32

# Writing this to an eventfd adds 1 to its counter.
_ONE: Final = (1).to_bytes(8, sys.byteorder)


class WakeUps:
    """Owns the descriptors once `open` was called."""

    def __init__(self) -> None:
        self._from_keeper: int | None = None
        self._to_keeper: int | None = None
        self._armed: Final[dict[str, memoryview]] = {}

    def open(self, from_keeper: int, to_keeper: int) -> None:
        """Take two descriptors: the worker waits on one, and writes to the other."""
        self._from_keeper, self._to_keeper = from_keeper, to_keeper

    def close(self) -> None:
        """Close the descriptors. `report_forever` must not be running."""
        for fd in {self._from_keeper, self._to_keeper}:
            if fd is not None:
                os.close(fd)
        self._from_keeper = self._to_keeper = None

    def arm(self, name: str, header: memoryview) -> None:
        """Request one wake-up at the next output of a terminal, with its ring's header."""
        self._armed[name] = header
        header[ARMED] = 1

    def disarm(self, name: str) -> None:
        self._armed.pop(name, None)

    def kick(self) -> None:
        """Make the keeper check whether rings that were full have free space."""
        if self._to_keeper is not None:
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(self._to_keeper, _ONE)

    async def report_forever(self, wake: Callable[[str], None]) -> None:
        """Call `wake` with a terminal's name at its first output after `arm`."""
        assert self._from_keeper is not None  # noqa: S101  `open` was called before
        while True:
            await trio.lowlevel.wait_readable(self._from_keeper)
            with suppress(BlockingIOError):
                os.read(self._from_keeper, 4096)
            # No variable for the header: it would hold the last ring until the next wake-up.
            for name in tuple(self._armed):
                # An earlier call of `wake` may have disarmed this terminal and unmapped its ring.
                if name in self._armed and not self._armed[name][ARMED]:
                    del self._armed[name]
                    wake(name)


class PendingRequest:
    """A request without a response. The task that creates it must also call `wait`.

    `make` makes the result of a started program; None for the restart of the worker, which only
    fails: on success the keeper kills this process.
    """

    def __init__(self, make: Callable[[Spawned], TerminalEvents] | None) -> None:
        self.make: Final = make
        self._task: trio.lowlevel.Task | None = trio.lowlevel.current_task()

    @property
    def is_cancelled(self) -> bool:
        return self._task is None

    async def wait(self) -> TerminalEvents:
        """Return what is passed to `finish`, or raise it."""

        def abandon(_raise: object) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        events: TerminalEvents = await trio.lowlevel.wait_task_rescheduled(abandon)
        return events

    def finish(self, result: outcome.Outcome[TerminalEvents]) -> None:
        """Make `wait` return, unless its task was cancelled."""
        if self._task is not None:
            trio.lowlevel.reschedule(self._task, result)


class PendingRequests:
    """All requests of one worker that have no response yet, by their number."""

    def __init__(self) -> None:
        self._count = 0
        # A cancelled one stays here until its response comes.
        self._requests: Final[dict[int, PendingRequest]] = {}

    def new_number(self) -> int:
        self._count += 1
        return self._count

    async def wait(
        self, number: int, make: Callable[[Spawned], TerminalEvents] | None = None
    ) -> TerminalEvents:
        request = self._requests[number] = PendingRequest(make)
        return await request.wait()

    def pop(self, number: int) -> PendingRequest | None:
        """Remove a request; None if it is unknown or cancelled."""
        request = self._requests.pop(number, None)
        return None if request is None or request.is_cancelled else request

    def fail_all(self, error: KeeperLostError) -> None:
        """Raise a copy of `error` in every waiting task."""
        for request in self._requests.values():
            request.finish(outcome.Error(KeeperLostError(*error.args)))
        self._requests.clear()


class KeeperClient:
    """The worker's end of its connection to the keeper. Owns the socket `sock`."""

    def __init__(self, sock: socket.socket) -> None:
        self.pid = 0  # the keeper's
        self.takeovers = 0  # how many workers served before this one
        self.embedded = False  # the keeper is this worker's child, and exits with it
        self.stored = False  # the service manager stores the PTYs: programs outlive the keeper
        self.terminals: list[Found] = []  # of previous workers, once `connect` has returned
        self.entries: dict[str, FoundEntry] = {}  # of previous workers, once `connect` has returned
        self._socket: Final = KeeperSocket(sock)
        self._wake_ups: Final = WakeUps()
        self._requests: Final = PendingRequests()
        self._spawning: Final = trio.Semaphore(_SPAWNS_MAX)
        self._watched: dict[str, TerminalEvents] = {}
        # Reports about terminals that were found and are not watched yet.
        self._pending_reports: dict[str, list[Callable[[TerminalEvents], None]]] = {}
        # The kinds of messages received so far.
        self._received: set[str] = set()
        self._terminated = False
        self._on_terminate: Callable[[], None] | None = None
        self._handlers: Final[dict[str, Callable[[Message], None]]] = {
            "welcome": self._welcome,
            "terminal": self._terminal,
            "entry": self._entry,
            "spawned": self._spawned,
            "refused": self._refused,
            "exited": self._exited,
            "closed": self._closed,
            "terminate": self._terminate,
            "restart_failed": self._restart_failed,
        }

    async def connect(self) -> None:
        """Receive the state that previous workers left: fill `terminals` and `entries`.

        Raises `KeeperLostError`, and `OSError` (EMFILE) if there are too few descriptors for the
        state.
        """
        self._socket.send("hello", __version__)
        await self._socket.receive_until(lambda: "state_end" in self._received, self._dispatch)
        for pid in (0, self.pid):
            request_short_slices(pid)

    async def ready(self) -> None:
        """Wait, with the state restored, until this worker may serve. Raises `KeeperLostError`."""
        self._socket.send("ready")
        await self._socket.receive_until(lambda: "go" in self._received, self._dispatch)

    async def run(self, *, on_terminate: Callable[[], None]) -> None:
        """Send queued messages, and handle received ones, until cancelled.

        `on_terminate` is called once, when a signal requests that the daemon shut down. Raises
        `KeeperLostError`.
        """
        await trio.lowlevel.checkpoint()
        self._on_terminate = on_terminate
        if self._terminated:
            on_terminate()
        lost: KeeperLostError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._socket.flush_forever)
            nursery.start_soon(self._wake_ups.report_forever, self._wake)
            try:
                await self._socket.receive_until(lambda: False, self._dispatch)
            except KeeperLostError as error:
                lost = error
                self._requests.fail_all(error)
            nursery.cancel_scope.cancel()
        if lost is not None:
            raise lost

    def close(self) -> None:
        """Close the descriptors. No other method may be running."""
        self._socket.close()
        self._wake_ups.close()

    def refuse(self, reason: str) -> None:
        """Report, in place of `ready`, why "the new worker" cannot take over; then exit."""
        self._socket.send("refuse", reason)

    async def spawn(
        self,
        name: str,
        program: Program,
        *,
        cols: int,
        rows: int,
        ring_size: int,
        record: bytes,
        encoding: str = "utf-8",
        cgroup: int | None,
        make: Callable[[Spawned], TerminalEvents],
    ) -> TerminalEvents:
        """Start a program on a new terminal; return what `make` makes of the response.

        It then gets all reports about the terminal. `record` is the terminal's state for the next
        worker, under the key `t/NAME`. `cgroup` is a descriptor of the group's directory; None for
        the keeper's.

        Raises `OSError` if the keeper refuses or descriptors are lacking, `KeeperLostError`, and
        the errors of `make`. If cancelled, the program is killed as soon as its start is reported.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            self._spawning.acquire_nowait()
        except trio.WouldBlock:
            await self._spawning.acquire()
        try:
            self._require_keeper()
            request = self._requests.new_number()
            fields = request, name, _to_wire(program), cols, rows, ring_size, record, encoding
            self._socket.send("spawn", *fields, fds=[] if cgroup is None else [cgroup])
            return await self._requests.wait(request, make)
        finally:
            self._spawning.release()

    def watch(self, name: str, events: TerminalEvents) -> None:
        """Pass all reports about a terminal of `connect` to `events`, also earlier ones."""
        self._watched[name] = events
        for report in self._pending_reports.pop(name, ()):
            report(events)

    def unwatch(self, name: str) -> None:
        """Drop all later reports about a terminal. Idempotent."""
        self._watched.pop(name, None)
        self._pending_reports.pop(name, None)
        self._wake_ups.disarm(name)

    def arm(self, name: str, header: memoryview) -> None:
        """Request one call of `TerminalEvents.wake` at the next output of a terminal."""
        # Then the caller must check `HEAD` before it waits: the keeper may have written before the
        # request took effect.
        self._wake_ups.arm(name, header)

    def disarm(self, name: str) -> None:
        """Cancel `arm`, before the ring is unmapped. Idempotent."""
        self._wake_ups.disarm(name)

    def kick(self) -> None:
        """Tell the keeper that a ring has free space, if its header's `STALLED` is set."""
        self._wake_ups.kick()

    def put(self, key: str, value: bytes, fds: Sequence[int] = ()) -> None:
        """Store a value and descriptors in the keeper, for the next worker.

        The caller keeps `fds`. Raises `OSError` (EMFILE) if they must be queued and cannot be
        duplicated.
        """
        self._socket.send("put", key, value, fds=fds)

    def delete(self, key: str) -> None:
        self._socket.send("delete", key)

    def put_screen(self, name: str, position: int, state: bytes) -> None:
        """Store the state of a terminal's emulator at a position of its output."""
        self.put(f"e/{name}", position.to_bytes(8, "big") + state)

    def stored_screen(self, name: str) -> tuple[int, bytes]:
        """Return what an earlier worker stored last with `put_screen`."""
        entry = self.entries.get(f"e/{name}")
        value = b"" if entry is None else entry.value
        return int.from_bytes(value[:8], "big"), value[8:]

    @property
    def is_flushed(self) -> bool:
        return self._socket.is_flushed

    async def flushed(self) -> None:
        """Wait until all messages so far were sent, or the connection is lost."""
        # Once a message of `put` is sent, its value survives the death of this worker.
        await self._socket.flushed()

    def close_master(self, name: str) -> None:
        """Make the keeper close its descriptor of a terminal's PTY."""
        self._socket.send("close", name)

    def forget(self, name: str) -> None:
        """Make the keeper drop a terminal with all its state, and kill the program if it runs."""
        self.unwatch(name)
        self._socket.send("forget", name)

    def status(self, text: str) -> None:
        """Set the status line that the service manager shows."""
        self._socket.send("status", text)

    def alive(self) -> None:
        """Report that this worker's event loop runs; resets the service manager's watchdog."""
        self._socket.send("alive")

    def end(self) -> None:
        """Tell the keeper that the daemon shuts down: it kills what is left after this worker."""
        self._socket.send("end")

    async def restart(self) -> None:
        """Replace this worker by one of the version of acpterm that is installed now.

        Does not return on success, because the keeper kills this process. Raises `RestartError` and
        `KeeperLostError`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._require_keeper()
        request = self._requests.new_number()
        self._socket.send("restart", request)
        await self._requests.wait(request)

    def _require_keeper(self) -> None:
        if self._socket.lost is not None:
            raise KeeperLostError(self._socket.lost)

    def _wake(self, name: str) -> None:
        if name in self._watched:
            self._watched[name].wake()

    def _dispatch(self, message: Message) -> None:
        if message.cut and "state_end" not in self._received:
            reason = "has no descriptor left for the state of the daemon"
            self.refuse(reason)
            raise OSError(errno.EMFILE, f"the worker {reason}")
        self._received.add(message.kind)
        handler = self._handlers.get(message.kind)
        if handler is not None:
            handler(message)

    def _welcome(self, message: Message) -> None:
        self.pid, self.takeovers, self.embedded, self.stored = message.fields[:4]
        self._wake_ups.open(*message.take_fds())

    def _terminal(self, message: Message) -> None:
        name, pid, started, report, closed_end, session = (*message.fields, None)[:6]
        ring, master = _ring_and_master(message)
        exited = None if report is None else exit_report(report)
        self.terminals.append(Found(name, pid, started, master, ring, exited, closed_end, session))
        self._pending_reports[name] = []

    def _entry(self, message: Message) -> None:
        key, value = message.fields[:2]
        self.entries[key] = FoundEntry(value, tuple(message.take_fds()))

    def _spawned(self, message: Message) -> None:
        request, name, pid, started, way, session = (*message.fields, None)[:6]
        spawn = self._requests.pop(request)
        if spawn is None or spawn.make is None:
            self.forget(name)
            return
        if message.cut:
            self.forget(name)
            spawn.finish(outcome.Error(OSError(errno.EMFILE, "the worker has no descriptor left")))
            return
        ring, master = _ring_and_master(message)
        spawned = Spawned(name, pid, started, master, ring, way, session)
        result = outcome.capture(spawn.make, spawned)
        if isinstance(result, outcome.Value):
            self._watched[name] = result.value
        else:
            self.forget(name)
        spawn.finish(result)

    def _refused(self, message: Message) -> None:
        request, number, reason = message.fields[:3]
        self._fail(request, OSError(number, reason))

    def _exited(self, message: Message) -> None:
        report = exit_report(message.fields[1:7])
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
        self._fail(request, RestartError(reason))

    def _fail(self, request: int, error: Exception) -> None:
        if (pending := self._requests.pop(request)) is not None:
            pending.finish(outcome.Error(error))


def _to_wire(program: Program) -> tuple[object, ...]:
    # marshal does not accept subclasses such as a NamedTuple.
    argv, env, cwd, umask, rlimits, fallback_argv = program
    limits = [tuple(limit) for limit in rlimits]
    return list(argv), dict(env), cwd, umask, limits, fallback_argv and list(fallback_argv)


def _ring_and_master(message: Message) -> tuple[int, int | None]:
    fds = message.take_fds()
    return fds[0], fds[1] if len(fds) > 1 else None
