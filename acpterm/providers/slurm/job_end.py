"""Asks Slurm what ended a job: a failed node, a limit, a preemption or a cancellation."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from acpterm.providers.provider import ProviderError
from acpterm.providers.slurm.commands import Done
from acpterm.terminal.status import EndedBy

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
