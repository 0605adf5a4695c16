"""The program of one terminal on a Slurm cluster. Implements `terminal.remote.RemoteProgram`.

What can go wrong:

- The program is killed while its job is queued: it never runs.
- srun is killed on this machine: Slurm may not notice, so `clean_up` cancels the job or the step.
- The node fails: srun would wait for the node, so srun is ended.
- The controller was just restarted, and postpones the step: srun asks the controller again only
  after minutes, or when another step of the job ends. So `follow` runs short steps in the job.
- Slurm forgets a job some minutes after its end: then it is unknown what ended the job.
"""

import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from acpterm.config.places import SlurmPlace
from acpterm.providers.provider import ProviderError
from acpterm.providers.slurm import progress
from acpterm.providers.slurm.commands import CommandLimits, Done, run
from acpterm.providers.slurm.progress import Progress
from acpterm.providers.slurm.step import end_argv, signal_argv
from acpterm.pty.signals import decode_status, name_of
from acpterm.terminal.remote import RemoteExit
from acpterm.terminal.status import EndedBy

# The pauses between two reads of a queued program's messages: short at first, so that a program
# that starts at once is reported at once; then long, since hundreds of programs may be queued.
_START_POLL_S: Final = 0.05
_YOUNG_S: Final = 2.0
_QUEUE_POLL_S: Final = 0.5
_NODE_POLL_S: Final = 1.0
# The seconds after the job has got its resources at which a short step is run, so that srun asks
# again. There are few of them, since the program may also wait for hours for other steps.
_WAKE_AFTER_S: Final = (6.0, 18.0, 60.0)
_COMMAND_TIMEOUT_S: Final = 5.0
# The exit codes of a shell whose command was ended by SIGHUP, SIGKILL or SIGTERM.
_CODES_OF_SIGNALS: Final = (129, 137, 143)
_UNKNOWN_CODE: Final = 255
# A shell exits with a code above this one if a signal ended its command.
_CODE_MAX: Final = 128

SETTLE_TIMEOUT_S: Final = 40.0
"""Maximum seconds to wait for a job's final state.

A job has it once its processes are killed (KillWait, 30 s) and its epilogue has run.
"""
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


async def ended_by(
    run: Callable[[list[str]], Awaitable[Done]], job: str, *, may_run: bool
) -> EndedBy | None:
    """Return what ended a job, from its final state in Slurm; None if that is unknown."""
    # `may_run` says whether to return None while the job runs, rather than to wait for its end.
    argv = ["scontrol", "--oneliner", "show", "job", job]
    with trio.move_on_after(SETTLE_TIMEOUT_S):
        while True:
            with contextlib.suppress(ProviderError):
                done = await run(argv)
                pairs = (word.partition("=") for word in done.text.split())
                state = {name: value for name, _, value in pairs}.get("JobState")
                if state == "RUNNING" and may_run:
                    return None
                if state is not None and state not in _UNSETTLED:
                    return _ENDED_BY.get(state)
                if "Invalid job id" in done.text:
                    return None
            await trio.sleep(_SETTLE_POLL_S)
    return None


def _nothing() -> None:
    pass


class SlurmProgram:
    """The program of a terminal, as a step of a job on the cluster of `place`."""

    # `identifier` marks its processes. `exit` calls `on_refusal` if the step may not have started.

    def __init__(
        self,
        place: SlurmPlace,
        identifier: str,
        log: str,
        limits: CommandLimits,
        *,
        shares_job: bool = False,
        on_refusal: Callable[[], None] = _nothing,
    ) -> None:
        self._place: Final = place
        self._identifier: Final = identifier
        self.log: Final = log
        self._limits: Final = limits
        self._shares_job: Final = shares_job
        self._on_refusal: Final = on_refusal
        self._size = 0
        self._progress = Progress()
        # Whether srun has ended, and whether the step is known to have ended with it.
        self._has_exited = self._is_complete = False
        self._is_being_ended = self._is_cancelled = False
        # Set while the caller cancels the job.
        self._cancelling: trio.Event | None = None

    @property
    def name(self) -> str:
        """The name of the job; in a shared job, the name of the step."""
        return f"acpterm-{self._identifier}"

    @property
    def _now(self) -> Progress:
        """The progress of the step; read again if the file with srun's messages has a new size."""
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
        """Whether the program has not started yet, and srun has not ended."""
        return not self._has_exited and self.host is None

    @property
    def answers_queries(self) -> bool:
        """False: srun passes the program's queries on to the emulator of this machine."""
        return False

    async def follow(self, changed: Callable[[], object]) -> None:
        """Call `changed` when the program starts; return only when its node has failed."""
        # Then the caller must end srun. If the job has its resources but the program does not
        # start, short steps in the job make srun request the program's step again.
        began, granted_at, woken = trio.current_time(), None, 0
        while self.is_queued:
            now = trio.current_time()
            await trio.sleep(_START_POLL_S if now - began < _YOUNG_S else _QUEUE_POLL_S)
            if self._now.is_granted and woken < len(_WAKE_AFTER_S):
                granted_at = granted_at or now
                if now - granted_at >= _WAKE_AFTER_S[woken] and await self._wake():
                    woken += 1
        changed()
        while not self._now.has_lost_node:  # noqa: ASYNC110  a file has no event to wait for
            await trio.sleep(_NODE_POLL_S)

    async def _wake(self) -> bool:
        """Run a short step in the job, unless one ran lately; False if none can be run now."""
        job, limits = self._now.job, self._limits
        if job is None:
            return False
        if limits.was_woken(job):
            return True
        if limits.wakes.available_tokens < 1:
            return False
        limits.record_wake(job)
        await self._in_job(["true"], limiter=limits.wakes)
        return True

    async def end(self, grace: float) -> bool:
        """End the program and its descendants; return whether that has succeeded."""
        # If signals fail, cancel the job, or only the step of a shared job: done once Slurm accepts
        # it.
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
        """Return the job to cancel, before `end_cancel`; None if there is nothing to do."""
        if self._is_complete or self._cancelling is not None or (job := self._now.job) is None:
            return None
        self._is_being_ended, self._cancelling = True, trio.Event()
        return job

    def end_cancel(self, *, is_cancelled: bool) -> None:
        """Record whether the job was cancelled; if not, `clean_up` does it."""
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
        """Return how the program ended, from the exit status of the wrapper, which is srun's."""
        # Unless the program ended by itself, Slurm is asked for up to `SETTLE_TIMEOUT_S`.
        found = self._now
        # A code above `_CODE_MAX` may mean that a signal ended srun, which Slurm may not notice.
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
        # Without the status of the task, srun's own code means nothing: it is 0 if the node fails.
        by = EndedBy.NODE_FAILURE if found.has_lost_node else await self._ended_by(found)
        if by is None:
            # A step that was never launched was refused by Slurm, or killed while it was queued.
            by = EndedBy.NOT_STARTED if found.step is None else EndedBy.LOST
        self._on_refusal()
        return RemoteExit(_UNKNOWN_CODE, None, None if self._is_being_ended else by)

    async def clean_up(self) -> None:
        """Cancel the job, or the step, unless it has ended; then remove the file `log`."""
        # If the cancellation fails, `log`, which names the job, is kept.
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
        """Cancel the job, or only the step of a shared job; return whether Slurm accepts that."""
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
        """Run a command on the program's node; return the output, empty if impossible."""
        node = self._now.node
        return "" if node is None else await self._in_job([f"--nodelist={node}", *argv], grace)

    async def _in_job(
        self, argv: list[str], more_s: float = 0.0, limiter: trio.CapacityLimiter | None = None
    ) -> str:
        """Run a command as a step of the job; return the output, empty if impossible."""
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
        async with limiter or self._limits.of(argv[0]):
            return await run(self._place, argv, timeout_s=_COMMAND_TIMEOUT_S + more_s)

    @property
    def _ends_with_srun(self) -> bool:
        """Whether the step is known to have ended, and the job serves no other program."""
        return self._is_complete and not self._shares_job

    async def _ended_by(self, found: Progress) -> EndedBy | None:
        if found.job is None or self._is_being_ended:
            return None
        return await ended_by(self._run, found.job, may_run=not self._ends_with_srun)
