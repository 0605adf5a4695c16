"""The keeper's event loop: descriptors, timers and signals, in a single thread.

A *reader* is a handler that is called when its descriptor is readable, hung up or in error. A
*writer* is called when its descriptor is writable. The loop logs an exception that a handler
raises, and continues: a defect in the handling of one message must not end the user's programs.
"""

from __future__ import annotations

import _heapq
import _signal  # type: ignore[import-not-found]  # typeshed has none
import os
import select
import sys
import time

from acpterm.keeper.process.diagnostics import can_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Handler: TypeAlias = Callable[[], None]

# On Linux, the event bits of epoll have the same values as those of poll.
_READABLE = select.POLLIN
_WRITABLE = select.POLLOUT
_BATCH_MAX = 256
_ERRORS_LOGGED_MAX = 100
_ERROR_PAUSE_S = 0.01


class Poller:
    """Level-triggered polling, by epoll(7); by poll(2) if the system has no epoll."""

    def __init__(self) -> None:
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._poll = None if self._epoll else select.poll()

    def add(self, fd: int, *, write: bool = False) -> None:
        if self._epoll is not None:
            self._epoll.register(fd, _WRITABLE if write else _READABLE)
        elif self._poll is not None:
            self._poll.register(fd, _WRITABLE if write else _READABLE)

    def remove(self, fd: int) -> None:
        if self._epoll is not None:
            self._epoll.unregister(fd)
        elif self._poll is not None:
            self._poll.unregister(fd)

    def wait(self, timeout_s: float | None, batch: int = _BATCH_MAX) -> list[tuple[int, int]]:
        """Return the ready descriptors with their events; with epoll, at most `batch` of them."""
        if self._epoll is not None:
            # Typeshed has epoll for Linux alone: elsewhere its methods are of type Any.
            ready: list[tuple[int, int]] = self._epoll.poll(
                -1 if timeout_s is None else timeout_s, batch
            )
            return ready
        if self._poll is None:
            return []
        # poll(2) takes milliseconds: round up, so as not to spin before a timer.
        return self._poll.poll(None if timeout_s is None else int(timeout_s * 1000 + 0.999))


class Loop:
    """The event loop. One *turn* waits for events and calls their handlers."""

    def __init__(self) -> None:
        self._poller = Poller()
        self._readers: dict[int, Handler] = {}
        # epoll takes a descriptor only once, so a duplicate is polled for writing.
        self._writers: dict[int, tuple[int, Handler]] = {}
        self._timers: list[tuple[float, int, Handler]] = []
        self._timer_count = 0
        self._running = True
        self._errors = 0
        self._signals: dict[int, list[Handler]] = {}
        self._signal_pipe: int | None = None
        self.batch_size = 0  # descriptors ready in this turn

    def add_reader(self, fd: int, handler: Handler) -> None:
        self._poller.add(fd)
        self._readers[fd] = handler

    def remove_reader(self, fd: int) -> None:
        """Stop calling the handler, before `fd` is closed. Idempotent."""
        if self._readers.pop(fd, None) is not None:
            self._poller.remove(fd)

    def add_writer(self, fd: int, handler: Handler) -> None:
        """Call `handler` once, when `fd` is writable. Raises `OSError` (EMFILE)."""
        if fd not in self._writers:
            duplicate = os.dup(fd)
            self._poller.add(duplicate, write=True)
            self._writers[fd] = duplicate, handler
            self._readers[duplicate] = lambda: self._written(fd)

    def remove_writer(self, fd: int) -> None:
        """Cancel `add_writer`, before `fd` is closed. Idempotent."""
        if fd in self._writers:
            duplicate, _ = self._writers.pop(fd)
            self.remove_reader(duplicate)
            os.close(duplicate)

    def _written(self, fd: int) -> None:
        _, handler = self._writers[fd]
        self.remove_writer(fd)
        handler()

    def call_later(self, seconds: float, handler: Handler) -> None:
        self._timer_count += 1
        entry = time.monotonic() + seconds, self._timer_count, handler
        _heapq.heappush(self._timers, entry)

    def on_signal(self, number: int, handler: Handler) -> None:
        """Call `handler`, in order, when a signal has come; once for several in one turn."""
        if self._signal_pipe is None:
            self._signal_pipe, write_end = os.pipe()
            os.set_blocking(self._signal_pipe, False)
            os.set_blocking(write_end, False)
            _signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
            self.add_reader(self._signal_pipe, self._read_signals)
        self._signals.setdefault(number, []).append(handler)
        _signal.signal(number, _ignore)

    def _read_signals(self) -> None:
        assert self._signal_pipe is not None  # noqa: S101  this handler reads from it
        for number in set(os.read(self._signal_pipe, 4096)):
            for handler in self._signals.get(number, ()):
                handler()

    def others_ready(self, fd: int) -> bool:
        """Return whether any descriptor other than `fd` is ready now."""
        return any(ready != fd for ready, _ in self._poller.wait(0, 2))

    def stop(self) -> None:
        """Make `run` return after it has called the handlers of the current events."""
        self._running = False

    def run(self, before_wait: Callable[[], float | None]) -> None:
        """Serve until `stop`; `before_wait` returns the maximum number of seconds to wait."""
        while self._running:
            self.turn(before_wait())

    def turn(self, timeout_s: float | None) -> None:
        if self._timers:
            wait = max(0.0, self._timers[0][0] - time.monotonic())
            timeout_s = wait if timeout_s is None else min(wait, timeout_s)
        ready = self._poller.wait(timeout_s)
        self.batch_size = len(ready)
        # Look up all handlers before calling any of them: a handler may close a descriptor, and the
        # next may open a new descriptor with the same number, to which this event does not apply.
        handlers = [(fd, self._readers.get(fd)) for fd, _ in ready]
        for fd, handler in handlers:
            if handler is not None and self._readers.get(fd) is handler:
                self.call(handler)
        if self._timers:
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                self.call(_heapq.heappop(self._timers)[2])

    def call(self, handler: Handler) -> None:
        """Call `handler`; log an exception that it raises."""
        try:
            handler()
        except Exception:  # noqa: BLE001  the loop must survive it: see the module's docstring
            if self._errors < _ERRORS_LOGGED_MAX:
                self._errors += 1
                kind, error, where = sys.exc_info()
                if kind is not None and error is not None and can_log():
                    sys.excepthook(kind, error, where)
            # The descriptor may be ready again at once: don't spin.
            time.sleep(_ERROR_PAUSE_S)


def _ignore(_number: int, _frame: object) -> None:
    """Do nothing: the loop reads the number of the signal from the pipe of `set_wakeup_fd`."""
