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


class PendingSpawn:
    """A request to start a program. The task that creates it must also call `wait`."""

    def __init__(self, make: Callable[[Spawned], TerminalEvents]) -> None:
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
        # A cancelled spawn stays here until its response comes.
        self._spawns: Final[dict[int, PendingSpawn]] = {}
        self._restarts: Final[dict[int, trio.lowlevel.Task]] = {}

    def new_number(self) -> int:
        self._count += 1
        return self._count

    async def wait_spawned(
        self, request: int, make: Callable[[Spawned], TerminalEvents]
    ) -> TerminalEvents:
        """Return what the task that receives the response gets from `make`."""
        spawn = self._spawns[request] = PendingSpawn(make)
        return await spawn.wait()

    def pop_spawn(self, request: int) -> PendingSpawn | None:
        """Remove a spawn request; None if it is unknown or cancelled."""
        spawn = self._spawns.pop(request, None)
        return None if spawn is None or spawn.is_cancelled else spawn

    async def wait_restarted(self, request: int) -> None:
        """Raise the error of `fail_restart`. On success the keeper kills this worker."""
        self._restarts[request] = trio.lowlevel.current_task()

        def abandon(_raise: object) -> trio.lowlevel.Abort:
            self._restarts.pop(request, None)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abandon)

    def fail_restart(self, request: int, error: Exception) -> None:
        task = self._restarts.pop(request, None)
        if task is not None:
            trio.lowlevel.reschedule(task, outcome.Error(error))

    def fail_all(self, error: KeeperLostError) -> None:
        """Raise a copy of `error` in every waiting task."""
        for spawn in self._spawns.values():
            spawn.finish(outcome.Error(KeeperLostError(*error.args)))
        for task in self._restarts.values():
            trio.lowlevel.reschedule(task, outcome.Error(KeeperLostError(*error.args)))
        self._spawns.clear()
        self._restarts.clear()
