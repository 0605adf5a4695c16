"""A worker's requests to its keeper that have no response yet: program starts, worker restarts.

A task waits for its response by `trio.lowlevel.wait_task_rescheduled` and not by a `trio.Event`:
when the task is cancelled, `wait_task_rescheduled` at once calls a function, which records the
cancellation. So when the keeper responds that it has started the program, the receiver of the
response knows that no task waits for the program, and makes the keeper kill it.
"""

from collections.abc import Callable
from typing import Final

import outcome
import trio

from acpterm.keeper.reports import KeeperLostError, Spawned, TerminalEvents


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
