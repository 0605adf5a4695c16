"""Makes the result of a command in a persistent shell, from what the shell's tracker knows."""

from typing import Final, NamedTuple

import anyio

from acpterm.api.results import Completed, ShellState
from acpterm.shell.tracker import Outcome, Tracker

_DETAILS: Final[dict[ShellState, str]] = {
    "running": "the command has not ended yet",
    "waiting_for_input": "the program waits for input: type into the shell's terminal, then wait",
}


class Command(NamedTuple):
    """The command that was typed last: its number in the shell, and its text.

    `began` is the time of its start (`anyio.current_time`). `started_new` is true if the shell was
    started for this command because the shell before it had ended. `is_retry` is true if the
    command was typed a second time.
    """

    n: int
    text: str
    began: float
    started_new: bool
    is_retry: bool


def completed_of(
    tracker: Tracker, command: Command, state: ShellState, outcome: Outcome | None = None
) -> Completed:
    """Return the result of `command`, with the value `state` for its member `state`.

    `outcome` says how the command or the shell has ended; None if neither has ended.
    """
    outcome = outcome or Outcome(
        "exact" if tracker.has_begun else "unknown", None, None, None, _DETAILS[state]
    )
    return Completed(
        state=state,
        output=tracker.output,
        exit_code=outcome.exit_code,
        pipe_status=outcome.pipe_status,
        cwd=outcome.cwd,
        boundary=outcome.boundary,
        wall_seconds=anyio.current_time() - command.began,
        position=tracker.position,
        truncated=tracker.truncated,
        output_begin=tracker.output_begin,
        started_new=command.started_new,
        detail=outcome.detail,
    )
