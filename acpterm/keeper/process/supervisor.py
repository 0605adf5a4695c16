"""The keeper of a daemon as its main process: starts, restarts and replaces the worker.

A *candidate* is a new worker, which will replace the serving one. `hello`, `ready`, `restart` and
`end` are messages from a worker to the keeper. States:

    first worker starts --`ready`--> serving
        exits before it is ready --> the daemon exits with the worker's status
    serving --dies--> restarting, after a delay (`Respawn`) --`ready`--> serving
        restarting --five deaths in a minute--> given up --SIGUSR1--> restarting
    serving --`restart` or SIGUSR1--> upgrading: a candidate starts
        candidate sends `hello` --> the serving worker gets SIGSTOP, the candidate gets the state
        candidate sends `ready` in time --> the old worker is killed, the candidate serves
        candidate fails --> it is killed, the old worker continues
        old worker dies --> the candidate takes over
    any state with a worker --the worker sends `end` and exits--> ended
    any state with a worker --SIGTERM, SIGINT, SIGHUP or SIGQUIT--> terminating: the worker shuts
        the daemon down; after `TERMINATE_TIMEOUT_S` seconds everything is killed
    no worker (given up, or in the delay of restarting) --one of these signals--> ended

If an upgrade after `restart` fails, the keeper sends the reason to the worker that sent `restart`.
If an upgrade after SIGUSR1 fails, the keeper logs the reason.

The service manager may pass sockets and stored descriptors, as in sd_listen_fds(3): `LISTEN_FDS`
descriptors from 3 on, if `LISTEN_PID` is this process, with the names in `LISTEN_FDNAMES`.

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

import _signal  # type: ignore[import-not-found]  # typeshed has none
import os
import time

from acpterm.keeper import ring_file
from acpterm.keeper.process import diagnostics
from acpterm.keeper.process.diagnostics import log, log_location, write_lock_file
from acpterm.keeper.process.keeper import Keeper
from acpterm.keeper.process.notify import (
    LEADER_PREFIX,
    MASTER_PREFIX,
    RING_PREFIX,
    TREES_NAME,
    Notifier,
)
from acpterm.keeper.process.worker import Worker, start_worker
from acpterm.keeper.programs import system
from acpterm.keeper.programs.leader import Leader
from acpterm.keeper.programs.reaping import Child, read_exit
from acpterm.keeper.programs.shutdown import end_programs
from acpterm.keeper.programs.terminal import HeldTerminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Mapping, Sequence

    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.process.store import EntryStore
    from acpterm.keeper.programs.terminals import HeldTerminals
    from acpterm.keeper.protocol import Message

READY_TIMEOUT_S = 30.0  # of a candidate
TERMINATE_TIMEOUT_S = 6.0
_RESTORE_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 1.0
_STOP_POLL_S = 0.001
_NOTIFY_TIMEOUT_S = 0.5

DEATHS_MAX = 5  # in `WINDOW_S` seconds; then no new worker is started
WINDOW_S = 60.0
_DELAYS_S = (0.0, 0.1, 0.5, 2.0)

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


class Respawn:
    """The restart policy: calls `start` after each death of a worker, with a growing delay.

    After too many deaths it gives up until `reset`, and says so in the lock file and to the
    manager.
    """

    def __init__(
        self, loop: Loop, store: EntryStore, notifier: Notifier, start: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._store = store
        self._notifier = notifier
        self._start = start
        self._deaths: list[float] = []
        self.given_up = False

    def worker_died(self, what: str) -> None:
        """Schedule the start of a new worker, or give up; `what` is for the log."""
        now = time.monotonic()
        self._deaths = [at for at in self._deaths if now - at < WINDOW_S] + [now]
        if len(self._deaths) >= DEATHS_MAX:
            self._give_up(what)
            return
        delay = _DELAYS_S[min(len(self._deaths), len(_DELAYS_S)) - 1]
        self._loop.call_later(delay, self._start)
        log(f"{what}; starting another in {delay:g} s")

    def reset(self) -> None:
        self._deaths = []
        self.given_up = False

    def _give_up(self, what: str) -> None:
        self.given_up = True
        message = (
            f"{what}, {DEATHS_MAX} times within a minute: given up. Programs run on and wait once"
            f" their buffers are full. Look into the log ({log_location()}), then run"
            " `acpterm restart`"
        )
        write_lock_file(self._store, message)
        log(message)
        self._notifier.status(message)
        self._feed_watchdog()

    def _feed_watchdog(self) -> None:
        # A worker would do this. If no process did, the manager would end the service with all
        # programs.
        interval = self._notifier.watchdog_s
        if self.given_up and interval is not None:
            self._notifier.alive()
            self._loop.call_later(interval, self._feed_watchdog)


class Supervisor:
    """The main process of a daemon: a keeper that starts, restarts and replaces the worker."""

    def __init__(
        self,
        loop: Loop,
        sock: _socket.socket,
        *,
        first_worker: int,
        command: Sequence[str],
        open_files: tuple[int, int],
    ) -> None:
        self._loop = loop
        self._command = command
        self._open_files = open_files
        self._nohup = _signal.getsignal(_signal.SIGHUP) == _signal.SIG_IGN
        self._notifier = Notifier(loop, os.environ)
        self._keeper = Keeper(loop, embedded=False, notifier=self._notifier)
        adopt_all(os.environ, self._keeper.terminals, self._keeper.store, self._notifier)
        self._served_count = 0
        self._respawn = Respawn(loop, self._keeper.store, self._notifier, self._start_successor)
        self._terminating = False
        self._ending = False
        self._status = 0
        self._candidate: Worker | None = None
        self._stopped: Worker | None = None
        self._restart_request: int | None = None
        self._handlers: dict[str, Callable[[Message], None]] = {
            "restart": self._restart,
            "end": self._end,
            "status": lambda message: self._notifier.status(message.fields[0]),
            "alive": lambda _: self._notifier.alive(),
        }
        # Includes workers that were killed and are not reaped yet.
        self._workers: set[Worker] = set()
        self._serving: Worker | None = self._watch(first_worker, sock)
        for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT):
            if number != _signal.SIGHUP or not self._nohup:
                loop.on_signal(number, self._terminate)
        loop.on_signal(_signal.SIGUSR1, self._restart_by_signal)
        loop.on_signal(_signal.SIGCHLD, self._child_signal)

    def run(self) -> int:
        """Serve until the daemon shuts down; return the exit status of this process."""
        self._loop.run(self._keeper.before_wait)
        if self._served_count:
            self._notifier.stopping()
            for worker in self._workers:
                worker.signal(_signal.SIGKILL)
            end_programs(self._keeper.terminals)
            self._notifier.remove_all()
            self._notifier.flush(_NOTIFY_TIMEOUT_S)
        return self._status

    # -- workers

    def _watch(self, pid: int, sock: _socket.socket) -> Worker:
        self._keeper.worker_pids.add(pid)
        worker = Worker(self._loop, pid, sock, receive=self._receive, gone=self._gone)
        self._workers.add(worker)
        return worker

    def _start(self) -> Worker:
        pid, sock = start_worker(self._command, self._open_files, nohup=self._nohup)
        return self._watch(pid, sock)

    def _receive(self, worker: Worker, message: Message) -> None:
        if message.kind == "hello":
            self._hello(worker)
        elif message.kind == "ready":
            self._ready(worker)
        elif message.kind == "refuse":
            worker.refusal = str(message.fields[0])
        elif worker is self._serving:
            handler = self._handlers.get(message.kind, self._keeper.receive)
            handler(message)

    def _hello(self, worker: Worker) -> None:
        worker.hello_received = True
        if worker is self._serving:
            self._keeper.send_state(worker.link, takeovers=self._served_count)
        elif self._serving is not None:
            self._stop(self._serving, time.monotonic() + _STOP_TIMEOUT_S)

    def _ready(self, worker: Worker) -> None:
        worker.is_ready = True
        if worker is self._candidate:
            self._replace(worker)
        if worker is self._serving:
            self._served_count += 1
            worker.link.send("go")
            self._notifier.ready()
            diagnostics.write_lock_file(self._keeper.store, "")

    def _gone(self, worker: Worker, status: int) -> None:
        """Roll back, replace or restart a worker that has ended, or end the daemon."""
        self._workers.discard(worker)
        self._keeper.worker_pids.discard(worker.pid)
        self._keeper.remove_link(worker.link)
        how = diagnostics.describe_wait_status(status)
        if worker is self._candidate:
            how = worker.refusal or f"{how} before it was ready: see its log"
            self._roll_back(f"the new worker {how}")
            return
        if worker is not self._serving:
            return
        if not diagnostics.has_crashed(status):
            self._keeper.terminals.clear_emulator_marks(was_killed=diagnostics.was_killed(status))
        self._serving, self._candidate = self._candidate, None
        self._stopped = self._restart_request = None
        if self._ending or self._terminating:
            self._loop.stop()
        elif not self._served_count:
            self._status = diagnostics.shell_status(status)
            self._loop.stop()
        elif self._serving is not None:
            self._limit_restoring(self._serving)
            if self._serving.hello_received and not self._keeper.has_state(self._serving.link):
                self._keeper.send_state(self._serving.link, takeovers=self._served_count)
        else:
            self._respawn.worker_died(f"the worker {worker.refusal or how}")

    # -- restarting

    def _start_successor(self) -> None:
        if self._serving is not None or self._respawn.given_up:
            return
        try:
            worker = self._serving = self._start()
        except OSError as error:
            self._respawn.worker_died(f"no worker could be started: {error}")
            return
        self._limit_restoring(worker)

    def _limit_restoring(self, worker: Worker) -> None:
        def kill_unready() -> None:
            if not worker.is_ready and not worker.ended:
                what = f"the worker is not ready after {_RESTORE_TIMEOUT_S:g} s: killing it"
                diagnostics.log(what)
                worker.signal(_signal.SIGKILL)

        self._loop.call_later(_RESTORE_TIMEOUT_S, kill_unready)

    # -- replacing

    def _restart_by_signal(self) -> None:
        if self._respawn.given_up:
            self._respawn.reset()
            self._start_successor()
        elif self._serving is not None and self._candidate is None and self._served_count:
            self._try_candidate()

    def _restart(self, message: Message) -> None:
        request = message.fields[0]
        if self._candidate is None:
            self._restart_request = request
            self._try_candidate()
        elif self._serving is not None:
            self._serving.link.send("restart_failed", request, "another restart is under way")

    def _try_candidate(self) -> None:
        if self._ending or self._terminating:
            self._roll_back("the daemon ends")
            return
        try:
            candidate = self._candidate = self._start()
        except OSError as error:
            self._roll_back(f"no worker could be started: {error}")
            return
        self._notifier.reloading()
        self._loop.call_later(READY_TIMEOUT_S, lambda: self._expire(candidate))

    def _expire(self, candidate: Worker) -> None:
        if candidate is self._candidate:
            self._roll_back(f"the new worker was not ready within {READY_TIMEOUT_S:g} s")

    def _stop(self, serving: Worker, deadline: float) -> None:
        """Stop the serving worker, without waiting for it; then send the candidate the state."""
        candidate = self._candidate
        if candidate is None or serving is not self._serving:
            return
        if self._stopped is None:
            self._stopped = serving
            serving.signal(_signal.SIGSTOP)
        if serving.is_stopped():
            serving.link.drain()
            self._keeper.send_state(candidate.link, takeovers=self._served_count)
        elif time.monotonic() < deadline:
            self._loop.call_later(_STOP_POLL_S, lambda: self._stop(serving, deadline))
        else:
            self._roll_back("the present worker cannot be stopped")

    def _replace(self, candidate: Worker) -> None:
        old, self._serving = self._serving, candidate
        self._candidate = self._stopped = self._restart_request = None
        if old is not None:
            # Its link need not be drained again: the worker was stopped before `_stop` drained it.
            self._keeper.remove_link(old.link)
            old.link.close()
            old.signal(_signal.SIGKILL)
            self._keeper.terminals.clear_emulator_marks()

    def _roll_back(self, reason: str) -> None:
        """Kill the candidate, and let the old worker continue; report or log the reason."""
        candidate, self._candidate = self._candidate, None
        if candidate is not None:
            self._keeper.remove_link(candidate.link)
            candidate.signal(_signal.SIGKILL)
        stopped, self._stopped = self._stopped, None
        if stopped is not None:
            stopped.signal(_signal.SIGCONT)
            # The candidate may have consumed the event that the old worker waits for.
            self._keeper.wake()
        self._notifier.ready()
        request, self._restart_request = self._restart_request, None
        if request is None or self._serving is None:
            diagnostics.log(f"restart failed: {reason}")
        else:
            self._serving.link.send("restart_failed", request, reason)

    # -- ending

    def _end(self, _message: Message) -> None:
        self._ending = True
        self._begin_shutdown()

    def _terminate(self) -> None:
        if self._terminating:
            return
        self._terminating = True
        self._begin_shutdown()
        if self._serving is None:
            self._loop.stop()
        else:
            self._serving.link.send("terminate")

    def _begin_shutdown(self) -> None:
        self._notifier.stopping()
        if self._candidate is not None:
            self._roll_back("the daemon ends")
        self._loop.call_later(TERMINATE_TIMEOUT_S, self._loop.stop)

    def _child_signal(self) -> None:
        for worker in tuple(self._workers):
            worker.check()
