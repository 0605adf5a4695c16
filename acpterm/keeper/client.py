"""The worker's end of the connection to the keeper, on trio.

Order: `connect`, which fills `terminals` and `entries`; `watch` for every terminal found; `ready`,
which waits until the keeper lets this worker publish; then `run`, in a nursery, for as long as the
worker lives. Reports about a terminal that is not yet watched wait for `watch`.

Nothing here waits for the keeper's socket: what does not fit is queued, and sent by `run`.
"""

import errno
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple, Protocol

import outcome
import trio

from acpterm import __version__
from acpterm.keeper import protocol
from acpterm.keeper.ring import ARMED
from acpterm.pty.program import Program

KEEPER_FD_VARIABLE: Final = "ACPTERM_KEEPER_FD"
UNKNOWN: Final = -1
"""The status of a program whose end was not seen: it was another keeper's child."""

_MESSAGES_PER_TURN = 64
_RETRY_S = 0.02
_END_TIMEOUT_S = 4.0


class ExitReport(NamedTuple):
    """How a program ended."""

    status: int
    """As `os.wait` has it, or `UNKNOWN`."""
    cpu: float
    """Seconds of processor time, user and system, with the children that it waited for."""
    max_rss: int
    """Bytes: the most memory that it, or one of its children, held at a time."""
    reaped_at: float
    """On the clock since boot (CLOCK_BOOTTIME)."""
    end: int
    """Everything that the program wrote itself lies before this position."""


class Spawned(NamedTuple):
    """A program that was started. The descriptors are the receiver's to close."""

    name: str
    pid: int
    started: float
    """Seconds since boot, as in /proc/PID/stat; 0.0 where that is unknown."""
    master: int | None
    """None if the terminal was closed before this message could be sent."""
    ring: int
    way: str
    """`posix_spawn`, `clone3`, `fork` or `ptyprocess`."""


class Found(NamedTuple):
    """A terminal of the worker before. The descriptors are the receiver's to close."""

    name: str
    pid: int
    started: float
    master: int | None
    """None once the terminal is closed."""
    ring: int
    exit: ExitReport | None
    closed_end: int | None


class Entry(NamedTuple):
    """What a worker before has put. The descriptors are the receiver's to close."""

    value: bytes
    fds: tuple[int, ...]


class TerminalEvents(Protocol):
    """What is told of one terminal. The methods return at once and do not raise."""

    def exited(self, report: ExitReport) -> None:
        """The program has ended and was reaped; comes once, before `closed`."""

    def closed(self, end: int) -> None:
        """The program was reaped and the PTY is closed: nothing comes after position `end`."""

    def wake(self) -> None:
        """More was written since `KeeperClient.arm`."""


class KeeperLostError(Exception):
    """The keeper is gone: programs run on without a parent that reports on them."""


class RestartError(Exception):
    """The new worker did not come up, and this one goes on; the message says why."""


class _Spawning:
    """A spawn whose answer is awaited."""

    def __init__(self, make: Callable[[Spawned], TerminalEvents]) -> None:
        self.make = make
        self.task: trio.lowlevel.Task | None = trio.lowlevel.current_task()


class KeeperClient:
    """One worker's connection to its keeper."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.set_inheritable(False)
        self._sock: Final = sock
        self.pid = 0
        """The keeper's."""
        self.takeovers = 0
        """How many workers there were before this one."""
        self.embedded = False
        self.terminals: list[Found] = []
        self.entries: dict[str, Entry] = {}
        self._queue: deque[tuple[bytes, list[int]]] = deque()
        self._queued = trio.Event()
        self._from_keeper: int | None = None
        self._to_keeper: int | None = None
        self._request = 0
        self._spawning: dict[int, _Spawning] = {}
        self._restarts: dict[int, trio.lowlevel.Task] = {}
        self._watched: dict[str, TerminalEvents] = {}
        # Reports about terminals that were found and are not watched yet.
        self._early: dict[str, list[Callable[[TerminalEvents], None]]] = {}
        self._armed: dict[str, memoryview] = {}
        self._lost: str | None = None
        self._went = False
        self._state_complete = False
        self._terminated = False
        self._on_terminate: Callable[[], None] | None = None

    async def connect(self) -> None:
        """Receive the state: `terminals` and `entries`. Raises `KeeperLostError`."""
        self._send("hello", __version__)
        await self._receive_until(lambda: self._state_complete)

    async def ready(self) -> None:
        """Report that the state is restored, and wait until this worker is the one that serves."""
        self._send("ready")
        await self._receive_until(lambda: self._went)

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
        record is stored as entry `t/NAME` with the program's start. Raises `OSError` when the keeper
        refuses, with the reason, and `KeeperLostError`. Cancelled, it leaves no program behind.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        request = self._new_request()
        spawning = self._spawning[request] = _Spawning(make)
        fields = request, name, _plain(program), cols, rows, ring_size, record
        try:
            self._send("spawn", *fields, fds=[] if cgroup is None else [cgroup])
        except BaseException:
            del self._spawning[request]
            raise

        def abandon(_raise: object) -> trio.lowlevel.Abort:
            spawning.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        made: TerminalEvents = await trio.lowlevel.wait_task_rescheduled(abandon)
        return made

    def watch(self, name: str, events: TerminalEvents) -> None:
        """Report about a terminal that was found, from now on and what came since."""
        self._watched[name] = events
        for report in self._early.pop(name, ()):
            report(events)

    def unwatch(self, name: str) -> None:
        """Report about a terminal no longer. Can be repeated."""
        self._watched.pop(name, None)
        self._early.pop(name, None)
        self._armed.pop(name, None)

    def arm(self, name: str, header: memoryview) -> None:
        """Have `wake` called when more is written to the ring with this header.

        The caller must look at `HEAD` once more after this call and before it waits.
        """
        self._armed[name] = header
        header[ARMED] = 1

    def disarm(self, name: str) -> None:
        """Undo `arm`; to be called before the ring is unmapped. Can be repeated."""
        self._armed.pop(name, None)

    def kick(self) -> None:
        """Notify the keeper that there is room again in a ring that was `STALLED`."""
        if self._to_keeper is not None:
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(self._to_keeper, _ONE)

    def put(self, key: str, value: bytes, fds: Sequence[int] = ()) -> None:
        """Store an entry for a successor; replaces the one of that key. Duplicates `fds`."""
        self._send("put", key, value, fds=fds)

    def delete(self, key: str) -> None:
        """Delete an entry, if it is there."""
        self._send("delete", key)

    def close_master(self, name: str) -> None:
        """Close the keeper's descriptor of a terminal's PTY."""
        self._send("close", name)

    def forget(self, name: str) -> None:
        """Have the keeper drop all it holds of a terminal; kills a program that still runs."""
        self.unwatch(name)
        self._send("forget", name)

    def status(self, text: str) -> None:
        """Set the status line that the service manager shows."""
        self._send("status", text)

    def alive(self) -> None:
        """Report that this worker's loop turns, for the service manager's watchdog."""
        self._send("alive")

    def end(self) -> None:
        """Announce that the daemon ends: the keeper ends what is left once this worker has gone."""
        self._send("end")

    async def restart(self) -> None:
        """Replace this worker by the installed version.

        Does not return when that succeeds: the process is killed. Raises `RestartError` when the new
        one did not come up, and `KeeperLostError`.
        """
        request = self._new_request()
        self._restarts[request] = trio.lowlevel.current_task()
        self._send("restart", request)

        def abandon(_raise: object) -> trio.lowlevel.Abort:
            self._restarts.pop(request, None)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abandon)

    async def run(self, *, on_terminate: Callable[[], None]) -> None:
        """Receive until cancelled. Raises `KeeperLostError` when the keeper is gone.

        `on_terminate` is called when a signal asks the daemon to end, once.
        """
        self._on_terminate = on_terminate
        if self._terminated:
            on_terminate()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flush_queue)
            nursery.start_soon(self._wake)
            with suppress(KeeperLostError):
                await self._receive_until(lambda: False)
            nursery.cancel_scope.cancel()
        raise KeeperLostError(self._lost)

    def close(self) -> None:
        """Close the connection; no task may use it any more."""
        self._sock.close()
        for fd in {self._from_keeper, self._to_keeper} - {None}:
            os.close(fd)  # type: ignore[arg-type]
        self._from_keeper = self._to_keeper = None
        self._drop_queue()

    # -- sending

    def _new_request(self) -> int:
        self._request += 1
        return self._request

    def _send(self, kind: str, *fields: object, fds: Sequence[int] = ()) -> None:
        if self._lost is not None:
            if kind in ("spawn", "restart", "hello", "ready"):
                raise KeeperLostError(self._lost)
            return
        data = protocol.encode(kind, *fields)
        if not self._queue:
            try:
                protocol.send(self._sock, data, fds)
            except BrokenPipeError:
                return  # the reading side sees the end, and what came before it
            except OSError as error:
                if isinstance(error, BlockingIOError) or error.errno in _RETRIED:
                    pass
                else:
                    raise
            else:
                return
        self._queue.append((data, [os.dup(fd) for fd in fds]))
        self._queued.set()

    async def _flush_queue(self) -> None:
        while True:
            await self._queued.wait()
            while self._queue:
                data, fds = self._queue[0]
                try:
                    protocol.send(self._sock, data, fds)
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._sock)
                    continue
                except BrokenPipeError:
                    self._drop_queue()
                    break
                except OSError as error:
                    if error.errno not in _RETRIED:
                        raise
                    await trio.sleep(_RETRY_S)
                    continue
                self._queue.popleft()
                for fd in fds:
                    os.close(fd)
            self._queued = trio.Event()

    def _drop_queue(self) -> None:
        while self._queue:
            for fd in self._queue.popleft()[1]:
                os.close(fd)

    # -- receiving

    async def _receive_until(self, done: Callable[[], bool]) -> None:
        while True:
            for _ in range(_MESSAGES_PER_TURN):
                if done():
                    return
                try:
                    message = protocol.receive(self._sock)
                except BlockingIOError:
                    await trio.lowlevel.wait_readable(self._sock)
                    continue
                except protocol.ProtocolError as error:
                    self._lose(str(error))
                    raise KeeperLostError(str(error)) from error
                if message is None:
                    self._lose("the keeper closed the connection: its process is gone")
                    raise KeeperLostError(self._lost)
                try:
                    self._dispatch(message)
                finally:
                    message.close()
            await trio.lowlevel.checkpoint()

    def _lose(self, reason: str) -> None:
        self._lost = reason
        waiting = [spawning.task for spawning in self._spawning.values()]
        waiting += self._restarts.values()
        self._spawning.clear()
        self._restarts.clear()
        for task in waiting:
            if task is not None:
                trio.lowlevel.reschedule(task, outcome.Error(KeeperLostError(reason)))

    def _dispatch(self, message: protocol.Message) -> None:
        handler = _HANDLERS.get(message.kind)
        if handler is not None:
            handler(self, message, *message.fields)

    def _welcome(
        self, message: protocol.Message, pid: int, takeovers: int, embedded: bool, *_: object
    ) -> None:
        self.pid, self.takeovers, self.embedded = pid, takeovers, embedded
        self._from_keeper, self._to_keeper = message.fds
        message.fds = []

    def _terminal(
        self,
        message: protocol.Message,
        name: str,
        pid: int,
        started: float,
        report: tuple[int | None, float, int, float, int] | None,
        closed_end: int | None,
        *_: object,
    ) -> None:
        ring, master = _take_descriptors(message)
        ended = None if report is None else _report(*report)
        self.terminals.append(Found(name, pid, started, master, ring, ended, closed_end))
        self._early[name] = []

    def _entry(self, message: protocol.Message, key: str, value: bytes, *_: object) -> None:
        self.entries[key] = Entry(value, tuple(message.fds))
        message.fds = []

    def _state_end(self, _message: protocol.Message, *_: object) -> None:
        self._state_complete = True

    def _go(self, _message: protocol.Message, *_: object) -> None:
        self._went = True

    def _spawned(
        self,
        message: protocol.Message,
        request: int,
        name: str,
        pid: int,
        started: float,
        way: str,
        *_: object,
    ) -> None:
        spawning = self._spawning.pop(request, None)
        if spawning is None or spawning.task is None or message.cut:
            self.forget(name)
            if spawning is not None and spawning.task is not None:
                refusal = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                trio.lowlevel.reschedule(spawning.task, outcome.Error(refusal))
            return
        ring, master = _take_descriptors(message)
        result = outcome.capture(spawning.make, Spawned(name, pid, started, master, ring, way))
        if isinstance(result, outcome.Value):
            self._watched[name] = result.value
        else:
            self.forget(name)
        trio.lowlevel.reschedule(spawning.task, result)

    def _refused(
        self, _message: protocol.Message, request: int, number: int, reason: str, *_: object
    ) -> None:
        spawning = self._spawning.pop(request, None)
        if spawning is not None and spawning.task is not None:
            trio.lowlevel.reschedule(spawning.task, outcome.Error(OSError(number, reason)))

    def _exited(
        self,
        _message: protocol.Message,
        name: str,
        status: int | None,
        cpu: float,
        max_rss: int,
        reaped_at: float,
        end: int,
        *_: object,
    ) -> None:
        report = _report(status, cpu, max_rss, reaped_at, end)
        self._tell(name, lambda events: events.exited(report))

    def _closed(self, _message: protocol.Message, name: str, end: int, *_: object) -> None:
        self._tell(name, lambda events: events.closed(end))

    def _tell(self, name: str, report: Callable[[TerminalEvents], None]) -> None:
        events = self._watched.get(name)
        if events is not None:
            report(events)
        elif name in self._early:
            self._early[name].append(report)

    def _terminate(self, _message: protocol.Message, *_: object) -> None:
        if not self._terminated:
            self._terminated = True
            if self._on_terminate is not None:
                self._on_terminate()

    def _restart_failed(
        self, _message: protocol.Message, request: int, reason: str, *_: object
    ) -> None:
        task = self._restarts.pop(request, None)
        if task is not None:
            trio.lowlevel.reschedule(task, outcome.Error(RestartError(reason)))

    async def _wake(self) -> None:
        assert self._from_keeper is not None  # noqa: S101  `connect` has received it
        while True:
            await trio.lowlevel.wait_readable(self._from_keeper)
            with suppress(BlockingIOError):
                os.read(self._from_keeper, 4096)
            for name, header in tuple(self._armed.items()):
                if not header[ARMED]:
                    del self._armed[name]
                    events = self._watched.get(name)
                    if events is not None:
                        events.wake()


_HANDLERS: Final[Mapping[str, Callable[..., None]]] = {
    "welcome": KeeperClient._welcome,  # noqa: SLF001  this module's own
    "terminal": KeeperClient._terminal,  # noqa: SLF001
    "entry": KeeperClient._entry,  # noqa: SLF001
    "state_end": KeeperClient._state_end,  # noqa: SLF001
    "go": KeeperClient._go,  # noqa: SLF001
    "spawned": KeeperClient._spawned,  # noqa: SLF001
    "refused": KeeperClient._refused,  # noqa: SLF001
    "exited": KeeperClient._exited,  # noqa: SLF001
    "closed": KeeperClient._closed,  # noqa: SLF001
    "terminate": KeeperClient._terminate,  # noqa: SLF001
    "restart_failed": KeeperClient._restart_failed,  # noqa: SLF001
}
_ONE: Final = (1).to_bytes(8, sys.byteorder)
# Too many descriptors under way, or no descriptor left for the file of a long message.
_RETRIED: Final = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.EMFILE, errno.ENFILE)


def _plain(program: Program) -> tuple[object, ...]:
    """Return the program as marshal takes it: tuples, lists and dicts, and no subclasses."""
    return (
        list(program.argv),
        dict(program.env),
        program.cwd,
        program.umask,
        [tuple(limit) for limit in program.rlimits],
        None if program.otherwise is None else list(program.otherwise),
    )


def _take_descriptors(message: protocol.Message) -> tuple[int, int | None]:
    fds, message.fds = message.fds, []
    return fds[0], fds[1] if len(fds) > 1 else None


def _report(status: int | None, cpu: float, max_rss: int, reaped_at: float, end: int) -> ExitReport:
    return ExitReport(UNKNOWN if status is None else status, cpu, max_rss, reaped_at, end)


def keeper_command() -> list[str]:
    """Return the command that starts a keeper, without its arguments.

    Without site-packages, to be small; where ptyprocess makes its children it is needed.
    """
    main = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
    flags = ["-I", "-S"] if sys.platform == "linux" else ["-I"]
    return [sys.executable, *flags, main]


@asynccontextmanager
async def embedded_keeper() -> AsyncIterator[KeeperClient]:
    """Start a keeper as a child; it ends with the block, and ends all programs that are left.

    It also ends, with them, when this process ends in any other way. Raises `OSError` when it cannot
    be started, and `KeeperLostError`, out of the block too.
    """
    ours, theirs = protocol.pair()
    sock = socket.socket(fileno=ours.detach())
    try:
        fd = theirs.fileno()
        # A session of its own: a Ctrl-C at this process's terminal is not for it.
        process = subprocess.Popen(
            [*keeper_command(), "embedded", str(fd), str(os.getpid())],
            pass_fds=(fd,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        sock.close()
        raise
    finally:
        theirs.close()
    client = KeeperClient(sock)
    failure: Exception | None = None

    async def serve(scope: trio.CancelScope) -> None:
        nonlocal failure
        try:
            await client.run(on_terminate=lambda: None)
        except KeeperLostError as error:
            failure = error
            scope.cancel()

    try:
        await client.connect()
        await client.ready()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, nursery.cancel_scope)
            try:
                yield client
            except Exception as error:  # noqa: BLE001  raised below, out of the nursery's group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
    finally:
        client.close()
        with trio.CancelScope(shield=True), trio.move_on_after(_END_TIMEOUT_S):
            while process.poll() is None:
                await trio.sleep(0.002)
        if process.poll() is None:
            process.kill()
            process.wait()


def inherited_keeper() -> KeeperClient | None:
    """Return the connection that this worker was started with; None if it was started otherwise."""
    number = os.environ.pop(KEEPER_FD_VARIABLE, None)
    return None if number is None else KeeperClient(socket.socket(fileno=int(number)))
