"""The program of one terminal on a cluster. Implements `terminal.remote`.

Unhappy orders: the program is killed while its job is queued, and never runs; srun is killed here,
and the step is cancelled all the same; the node fails, and srun, which would wait for the node, is
ended; a controller that was just restarted postpones a step, and srun asks again only when another
step of the job has ended, or after minutes: a short step is run for that; Slurm forgets a job some
minutes after its end, and then it is unknown what ended it.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Final

import trio

from acpterm.config.places import SlurmPlace
from acpterm.providers.provider import ProviderError
from acpterm.providers.slurm import progress
from acpterm.providers.slurm.commands import Done, Room, run
from acpterm.providers.slurm.progress import Progress
from acpterm.providers.slurm.step import end_argv, signal_argv
from acpterm.pty.signals import decode_status, name_of
from acpterm.terminal.remote import RemoteExit
from acpterm.terminal.status import EndedBy

# A program that starts at once is reported at once; hundreds that wait must cost little.
_START_POLL_S: Final = 0.05
_YOUNG_S: Final = 2.0
_QUEUE_POLL_S: Final = 0.5
_NODE_POLL_S: Final = 1.0
# When another step is run so that srun asks again, in seconds since the job had its resources. The
# step may also wait for other steps of the job, for hours.
_WAKE_AFTER_S: Final = (6.0, 18.0, 60.0)
_COMMAND_TIMEOUT_S: Final = 5.0
# A job is settled once its processes are killed (KillWait, 30 s) and its epilogue has run.
_SETTLE_TIMEOUT_S: Final = 40.0
_SETTLE_POLL_S: Final = 0.2
_ENDED_BY: Final = {
    "NODE_FAIL": EndedBy.NODE_FAILURE,
    "BOOT_FAIL": EndedBy.NODE_FAILURE,
    "TIMEOUT": EndedBy.TIME_LIMIT,
    "DEADLINE": EndedBy.TIME_LIMIT,
    "PREEMPTED": EndedBy.PREEMPTED,
    "CANCELLED": EndedBy.CANCELLED,
}
_UNSETTLED: Final = ("COMPLETING", "RUNNING", "CONFIGURING", "PENDING")
# The codes with which a shell exits if it or its command was ended by SIGHUP, SIGKILL or SIGTERM.
_CODES_OF_SIGNALS: Final = (129, 137, 143)
_UNKNOWN_CODE: Final = 255
# A shell exits with a code above this one if a signal ended its command.
_CODE_MAX: Final = 128


def _nothing() -> None:
    pass


class SlurmProgram:
    """A program; `log` is the file with srun's messages.

    `room` bounds how many commands of Slurm run at once. `shares_job` says whether the program
    is a step of an allocation that serves others, too; `on_refusal` is then called if the step
    could not be started or has lost its allocation.
    """

    def __init__(
        self,
        place: SlurmPlace,
        identifier: str,
        log: str,
        room: Room,
        *,
        shares_job: bool = False,
        on_refusal: Callable[[], None] = _nothing,
    ) -> None:
        self._place: Final = place
        self._identifier: Final = identifier
        self.log: Final = log
        self._room: Final = room
        self._shares_job: Final = shares_job
        self._on_refusal: Final = on_refusal
        self._size = 0
        self._progress = Progress()
        # Whether srun has ended, and has taken the step with it.
        self._has_exited = self._is_complete = False
        self._is_being_ended = self._is_cancelled = False
        # Set while the caller cancels the job.
        self._cancelling: trio.Event | None = None

    @property
    def name(self) -> str:
        """The name of the job, or of the step."""
        return f"acpterm-{self._identifier}"

    @property
    def _now(self) -> Progress:
        """How far the step is."""
        with contextlib.suppress(OSError):
            size = os.stat(self.log).st_size
            if size != self._size:
                self._progress, self._size = progress.load(self.log), size
        return self._progress

    @property
    def host(self) -> str | None:
        """The name of the node; None until Slurm has chosen it."""
        return self._progress.node or self._now.node

    @property
    def is_queued(self) -> bool:
        """Whether the program waits for resources."""
        return not self._has_exited and self.host is None

    async def follow(self, changed: Callable[[], object]) -> None:
        """Call `changed` when the program starts; return when its node has failed.

        srun ends with the program, once it has passed on all output; but it waits for a node.
        """
        began, granted_at, woken = trio.current_time(), None, 0
        while self.is_queued:
            now = trio.current_time()
            await trio.sleep(_START_POLL_S if now - began < _YOUNG_S else _QUEUE_POLL_S)
            if self._now.is_granted and woken < len(_WAKE_AFTER_S):
                granted_at = granted_at or now
                if now - granted_at >= _WAKE_AFTER_S[woken] and await self._wake():
                    woken += 1
        changed()
        while not self._now.has_lost_node:  # noqa: ASYNC110  a file does not say
            await trio.sleep(_NODE_POLL_S)

    async def _wake(self) -> bool:
        """Run a short step, so that srun asks again; return whether one has run for the job."""
        job, room = self._now.job, self._room
        if job is None:
            return False
        if room.was_woken(job):
            return True
        if room.wakes.available_tokens < 1:
            return False
        room.record_wake(job)
        await self._in_job(["true"], limiter=room.wakes)
        return True

    async def end(self, grace: float) -> bool:
        """End the program and its descendants; return whether none is left."""
        self._is_being_ended = True
        if self._is_complete or self._is_cancelled or self._cancelling is not None:
            return True
        found = self._now
        if found.step is not None and not found.has_lost_node:
            reply = await self._on_node(end_argv(self._identifier, grace), grace)
            if "acpterm 0 ended" in reply:
                return True
        return await self._cancel()

    def begin_cancel(self) -> str | None:
        """Record that the caller cancels the program's job, and return the job.

        The caller then calls `end_cancel`. Returns None, and records nothing, if Slurm has not
        reported which job it is, or if the caller cancels it already.
        """
        if self._is_complete or self._cancelling is not None or (job := self._now.job) is None:
            return None
        self._is_being_ended, self._cancelling = True, trio.Event()
        return job

    def end_cancel(self, *, is_cancelled: bool) -> None:
        """Record whether the caller has cancelled the job; else the program does it itself."""
        self._is_cancelled = is_cancelled
        if self._cancelling is not None:
            self._cancelling.set()
            self._cancelling = None

    async def signal(self, number: int) -> bool:
        """Send a signal to the foreground process group; return whether it was sent."""
        word = name_of(number).removeprefix("SIG")
        argv = signal_argv(self._identifier, word if word.isalnum() else str(number))
        return "acpterm 0 yes" in await self._on_node(argv, 0.0)

    async def exit(self, code: int | None, signal: str | None) -> RemoteExit:
        """Return how the program ended; `code` and `signal` are how srun ended."""
        found = self._now
        # The wrapper turns a signal that ended srun into a code. Slurm may not notice that end.
        has_ended = found.status is not None or (code or 0) <= _CODE_MAX
        self._has_exited, self._is_complete = True, signal is None and has_ended
        if found.status is not None:
            own = decode_status(found.status)
            if not found.is_stopped and own[1] is None and own[0] not in _CODES_OF_SIGNALS:
                return RemoteExit(*own)
            by = await self._ended_by(found)
            if by is not None:
                self._on_refusal()
            return RemoteExit(*own, by)
        # srun exits with 0 when the node has failed: its code says nothing without a status.
        by = EndedBy.NODE_FAILURE if found.has_lost_node else await self._ended_by(found)
        if by is None:
            # A step that was never launched was refused, or killed in the queue.
            by = EndedBy.NOT_STARTED if found.step is None else EndedBy.LOST
        self._on_refusal()
        return RemoteExit(_UNKNOWN_CODE, None, None if self._is_being_ended else by)

    async def clean_up(self) -> None:
        """Cancel what is left of the job, and remove the file.

        Raises `ProviderError` if cancelling has failed: the file, which names the job, is kept.
        """
        if self._cancelling is not None:
            await self._cancelling.wait()
        if not self._is_complete and not self._is_cancelled:
            # A step of a shared job that was never launched has nothing to cancel.
            is_launched = not self._shares_job or self._now.step is not None
            if is_launched and not await self._cancel():
                raise ProviderError(f"{self._now.job or self.name}: the job cannot be cancelled")
        with contextlib.suppress(OSError):
            os.unlink(self.log)

    async def _cancel(self) -> bool:
        """Cancel the job, or the step of a shared one; return whether Slurm has agreed."""
        found = self._now
        if not self._shares_job:
            words = [f"--name={self.name}"] if found.job is None else [found.job]
        elif found.step is not None:
            words = ["--signal=KILL", found.step]
        else:
            return False
        try:
            done = await self._run(["scancel", *words])
        except ProviderError:
            return False
        return done.has_cancelled

    async def _on_node(self, argv: list[str], grace: float) -> str:
        """Run a command beside the program; return what it prints, nothing if it cannot run."""
        node = self._now.node
        return "" if node is None else await self._in_job([f"--nodelist={node}", *argv], grace)

    async def _in_job(
        self, argv: list[str], more_s: float = 0.0, limiter: trio.CapacityLimiter | None = None
    ) -> str:
        """Run a step of the job; return what it prints, nothing if it cannot run.

        `limiter` is what bounds it, if not what bounds all steps.
        """
        found = self._now
        if found.job is None:
            return ""
        where = [f"--jobid={found.job}", "--overlap", "--chdir=/"]
        options = ["--nodes=1", "--ntasks=1", "--mpi=none", "--quiet", *where]
        try:
            done = await self._run(["srun", *options, *argv], more_s, limiter)
        except ProviderError:
            return ""
        return done.text

    async def _run(
        self, argv: list[str], more_s: float = 0.0, limiter: trio.CapacityLimiter | None = None
    ) -> Done:
        """Run a command once there is room; `more_s` is added to its timeout.

        Raises `ProviderError`.
        """
        async with limiter or self._room.of(argv[0]):
            return await run(self._place, argv, timeout_s=_COMMAND_TIMEOUT_S + more_s)

    @property
    def _ends_with_srun(self) -> bool:
        """Whether Slurm ends the job because srun has ended by itself."""
        return self._is_complete and not self._shares_job

    async def _ended_by(self, found: Progress) -> EndedBy | None:
        """Return what ended the job, as Slurm says; None if the job runs on or is forgotten."""
        if found.job is None or self._is_being_ended:
            return None
        argv = ["scontrol", "--oneliner", "show", "job", found.job]
        with trio.move_on_after(_SETTLE_TIMEOUT_S):
            while True:
                with contextlib.suppress(ProviderError):
                    done = await self._run(argv)
                    pairs = (word.partition("=") for word in done.text.split())
                    state = {name: value for name, _, value in pairs}.get("JobState")
                    if state == "RUNNING" and not self._ends_with_srun:
                        return None
                    if state is not None and state not in _UNSETTLED:
                        return _ENDED_BY.get(state)
                    if "Invalid job id" in done.text:
                        return None
                await trio.sleep(_SETTLE_POLL_S)
        return None
