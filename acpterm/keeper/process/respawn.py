"""Decides when to start a new worker after one has died, and when to give up."""

from __future__ import annotations

import time

from acpterm.keeper.process.diagnostics import log, log_location, write_lock_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.process.notify import Notifier
    from acpterm.keeper.process.store import EntryStore

DEATHS_MAX = 5  # in `WINDOW_S` seconds; then no new worker is started
WINDOW_S = 60.0
_DELAYS_S = (0.0, 0.1, 0.5, 2.0)


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
