"""The program of one terminal on a cluster. Implements `terminal.remote`.

Unhappy orders: srun is killed here, and the step is cancelled all the same; a background process
holds the step's terminal open, and srun would wait for it, so srun is ended; the node fails, and
srun would wait for the node; Slurm forgets a job some minutes after its end, and what ended it is
unknown then.
"""

import os
from collections.abc import Callable
from typing import Final

import trio

from acpterm.config.places import SlurmPlace
from acpterm.providers.provider import ProviderError
from acpterm.providers.slurm import progress
from acpterm.providers.slurm.commands import run
from acpterm.providers.slurm.progress import Progress
from acpterm.providers.slurm.step import end_argv, signal_argv
from acpterm.pty.signals import decode_status, name_of
from acpterm.terminal.remote import RemoteExit
from acpterm.terminal.status import EndedBy

_POLL_S: Final = 0.05
_COMMAND_TIMEOUT_S: Final = 5.0
_STATE_TIMEOUT_S: Final = 8.0
_STATE_POLL_S: Final = 0.2
_ENDED_BY: Final = {
    "NODE_FAIL": EndedBy.NODE_FAILURE,
    "BOOT_FAIL": EndedBy.NODE_FAILURE,
    "TIMEOUT": EndedBy.TIME_LIMIT,
    "DEADLINE": EndedBy.TIME_LIMIT,
    "PREEMPTED": EndedBy.PREEMPTED,
    "CANCELLED": EndedBy.CANCELLED,
}
_UNSETTLED: Final = ("COMPLETING", "RUNNING", "CONFIGURING", "PENDING")


class SlurmProgram:
    """A program; `log` is the file with srun's messages, and `name` that of its own job.

    `allocation` is the file of the messages of an allocation's salloc, or the id of a job, if the
    program has no job of its own.
    """

    def __init__(
        self, place: SlurmPlace, identifier: str, log: str, allocation: str | None
    ) -> None:
        self._place: Final = place
        self._identifier: Final = identifier
        self._log: Final = log
        self._allocation: Final = allocation
        self._seen: tuple[int, Progress] = (0, Progress())
        self._is_over = False

    @property
    def name(self) -> str:
        """The name of the job, or of the step."""
        return f"acpterm-{self._identifier}"

    @property
    def progress(self) -> Progress:
        """How far the step is."""
        try:
            size = os.stat(self._log).st_size
        except OSError:
            return self._seen[1]
        if size != self._seen[0]:
            self._seen = size, progress.read(self._log)
        return self._seen[1]

    @property
    def host(self) -> str | None:
        """The name of the node; None until Slurm has chosen it."""
        return self.progress.node

    @property
    def is_queued(self) -> bool:
        """Whether the program waits for resources."""
        return not self._is_over and self.progress.step is None

    async def follow(self, changed: Callable[[], object]) -> None:
        """Call `changed` when the program starts; return when it has ended."""
        was_queued = True
        while not self.progress.has_ended:
            if was_queued and not self.is_queued:
                was_queued = False
                changed()
            await trio.sleep(_POLL_S)

    async def end(self, grace: float) -> bool:
        """End the program and its descendants; return whether none is left."""
        found = self.progress
        if found.step is not None and not found.has_lost_node:
            reply = await self._on_node(end_argv(self._identifier, grace), grace)
            if reply == "acpterm 0 ended":
                return True
        return await self._cancel()

    async def signal(self, number: int) -> bool:
        """Send a signal to the foreground process group; return whether it was sent."""
        word = name_of(number).removeprefix("SIG")
        argv = signal_argv(self._identifier, word if word.isalnum() else str(number))
        return await self._on_node(argv, 0.0) == "acpterm 0 yes"

    async def exit(self, code: int | None, signal: str | None) -> RemoteExit:
        """Return how the program ended; `code` and `signal` are how srun ended."""
        self._is_over = True
        found = self.progress
        if found.status is not None:
            own = decode_status(found.status)
            if own[1] is None:
                return RemoteExit(*own)
            return RemoteExit(*own, await self._ended_by(found))
        if found.step is None:
            # It was never launched: it was killed in the queue, or Slurm has refused it.
            by = await self._ended_by(found) if found.job is not None else None
            if signal is None and by is None:
                by = EndedBy.NOT_STARTED
            return RemoteExit(255, None, by)
        if code == 0:
            return RemoteExit(0, None)
        by = EndedBy.NODE_FAILURE if found.has_lost_node else await self._ended_by(found)
        return RemoteExit(255, None, by or EndedBy.LOST)

    async def clean_up(self) -> None:
        """Cancel what is left of the step, and remove the file."""
        found = self.progress
        if found.status is None or not self._is_over:
            await self._cancel()
        elif self._allocation is None or await self._has_step(found):
            await self._cancel()
        with_suppressed_unlink(self._log)

    async def _has_step(self, found: Progress) -> bool:
        del found
        return True

    async def _cancel(self) -> bool:
        """Cancel the job, or the step in an allocation; return whether Slurm has done so."""
        found = self.progress
        if self._allocation is None:
            words = ["--name", self.name] if found.job is None else [found.job]
        elif found.step is not None:
            words = ["--signal=KILL", found.step]
        else:
            return False
        try:
            done = await run(self._place, ["scancel", *words], timeout_s=_COMMAND_TIMEOUT_S)
        except ProviderError:
            return False
        return done.status == 0

    async def _on_node(self, argv: list[str], grace: float) -> str | None:
        """Run a command beside the program; return what it prints, or None if it cannot run."""
        found = self.progress
        if found.job is None or found.node is None:
            return None
        where = [f"--jobid={found.job}", "--overlap", f"--nodelist={found.node}"]
        try:
            done = await run(
                self._place,
                ["srun", *where, "--nodes=1", "--ntasks=1", "--quiet", "--chdir=/", *argv],
                timeout_s=grace + _COMMAND_TIMEOUT_S,
            )
        except ProviderError:
            return None
        return done.text

    async def _ended_by(self, found: Progress) -> EndedBy | None:
        """Return what ended the job, as Slurm says; None if the job runs on or is forgotten."""
        argv = ["scontrol", "--oneliner", "show", "job", found.job or ""]
        with trio.move_on_after(_STATE_TIMEOUT_S):
            while True:
                try:
                    done = await run(self._place, argv, timeout_s=_COMMAND_TIMEOUT_S)
                except ProviderError:
                    return None
                words = dict(
                    word.split("=", 1) for word in done.text.split() if "=" in word
                )
                state = words.get("JobState")
                if state is None or (state == "RUNNING" and self._allocation is not None):
                    return None
                if state not in _UNSETTLED:
                    return _ENDED_BY.get(state)
                await trio.sleep(_STATE_POLL_S)
        return None


def with_suppressed_unlink(path: str) -> None:
    """Remove a file, if it exists."""
    try:
        os.unlink(path)
    except OSError:
        pass
