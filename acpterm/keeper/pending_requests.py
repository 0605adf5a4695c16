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
    """A request to start a program (a spawn) that has no response yet.

    `make` converts the keeper's response into the result of `KeeperClient.spawn`. The task that
    creates this object must also call `wait`.
    """

    def __init__(self, make: Callable[[Spawned], TerminalEvents]) -> None:
        self.make: Final = make
        self._task: trio.lowlevel.Task | None = trio.lowlevel.current_task()

    @property
    def is_cancelled(self) -> bool:
        """Whether no task waits for the response any more."""
        return self._task is None

    async def wait(self) -> TerminalEvents:
        """Wait until `finish` is called; return the value or raise the error passed to `finish`."""

        def abandon(_raise: object) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        events: TerminalEvents = await trio.lowlevel.wait_task_rescheduled(abandon)
        return events

    def finish(self, result: outcome.Outcome[TerminalEvents]) -> None:
        """Make `wait` return the value of `result`, or raise its error.

        Does nothing if the waiting task was cancelled.
        """
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
        """Return a number that no other request of this worker has."""
        self._count += 1
        return self._count

    async def wait_spawned(
        self, request: int, make: Callable[[Spawned], TerminalEvents]
    ) -> TerminalEvents:
        """Wait for the response to the spawn request with the number `request`.

        The task that receives the response calls `make` with the response, and passes the result,
        or an error, to `PendingSpawn.finish`. Then this call returns the result, or raises the
        error.
        """
        spawn = self._spawns[request] = PendingSpawn(make)
        return await spawn.wait()

    def pop_spawn(self, request: int) -> PendingSpawn | None:
        """Remove the spawn request with this number.

        Returns the request, or None if it is unknown or the task that waited was cancelled.
        """
        spawn = self._spawns.pop(request, None)
        return None if spawn is None or spawn.is_cancelled else spawn

    async def wait_restarted(self, request: int) -> None:
        """Wait until a request to restart this worker fails; raise the error. Never returns.

        `request` is the request's number. If the restart succeeds, the keeper kills this worker.
        """
        self._restarts[request] = trio.lowlevel.current_task()

        def abandon(_raise: object) -> trio.lowlevel.Abort:
            self._restarts.pop(request, None)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abandon)

    def fail_restart(self, request: int, error: Exception) -> None:
        """Make `wait_restarted` raise `error` for the restart request with the number `request`.

        Does nothing if the waiting task was cancelled.
        """
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
