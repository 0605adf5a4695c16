"""Decides how a run of `acpterm prompt` ends, and with which exit status.

The causes are the end of the turn, a signal, a timeout, and an error while writing to stdout or
stderr. The first cause decides the exit status; later causes can only end the run sooner. There is
one exception: a success becomes a failure if the rest of the output cannot be written.
"""

import errno
import math
import signal
from collections.abc import AsyncIterator, Callable
from typing import Final

import trio

from acpterm.runtime.send_queue import SendQueue

FAILED: Final = 1
NOT_ALLOWED: Final = 3
TIMED_OUT: Final = 124
CANCELLED: Final = 130
# Time for the agent to end a turn that timed out.
CANCEL_TIMEOUT_S: Final = 2.0

_STATUS: Final = {"end_turn": 0, "cancelled": CANCELLED}


class Outcome:
    """Records why a run ends, and its exit status; ends the run by cancelling `scope`.

    `notice` is called with each message for the user.
    """

    def __init__(self, notice: Callable[[str], None]) -> None:
        self.scope: Final = trio.CancelScope()
        """The scope of the run: cancelling it ends the agent."""
        self.cancel: Callable[[], None] | None = None
        """Cancels the agent's turn; None until the turn can be cancelled."""
        self.status = FAILED
        """The exit status of `acpterm prompt`; `FAILED` until a cause has set it."""
        self.stop_reason: str | None = None
        """The stop reason of the turn; None until it has ended."""
        self.error: str | None = None
        """The error message, if there was an error."""
        self.write_error: str | None = None
        """Why stdout or stderr could not be written to; None if they could."""
        self._notice = notice
        self._is_decided = False

    def decide(self, status: int) -> bool:
        """Set the exit status to `status`, unless an earlier cause has set it.

        Return whether this call has set it.
        """
        if self._is_decided:
            return False
        self.status, self._is_decided = status, True
        return True

    def turn_ended(self, reason: str, *, refusals: int = 0) -> None:
        """Record that the turn has ended with the stop reason `reason`.

        The exit status is set, unless a signal, a timeout or a write error has set it before.
        `refusals` is 0 if the agent has done anything that counts as acting (`ToolCalls.acted`),
        such as running a command. Otherwise it is the number of permissions that the agent was
        refused. If `refusals` is above 0, a normal end has the status `NOT_ALLOWED`.
        """
        self.stop_reason = reason
        status = _STATUS.get(reason, FAILED)
        if status == 0 and refusals:
            status = NOT_ALLOWED
        if not self.decide(status):
            return
        if reason == "cancelled":
            self.error = "the agent says that the turn was cancelled"
        elif status == NOT_ALLOWED:
            count = "1 request was" if refusals == 1 else f"{refusals} requests were"
            self.error = (
                f"{count} refused and nothing was done: --allow all allows what the agent asks "
                "for, --allow reads what it calls reading or searching"
            )

    async def watch(self, signals: AsyncIterator[int]) -> None:
        """End the run on a signal. Before that, set the exit status if no earlier cause has set it.

        If a SIGINT during the turn sets the exit status, cancel the turn instead of ending the run.
        `signals` yields the numbers of the signals.
        """
        async for number in signals:
            if self.stop_reason is not None:
                self.scope.cancel()
                continue
            is_first = self.decide(128 + number)
            if is_first and number == signal.SIGINT and self.cancel is not None:
                self.cancel()
                self._notice("cancelled; Ctrl-C once more ends the agent")
            else:
                self.error = self.error or f"ended by {signal.Signals(number).name}"
                self.scope.cancel()

    async def expire(self, seconds: float) -> None:
        """Wait for `seconds`; then cancel the turn, and end the run `CANCEL_TIMEOUT_S` later.

        If the turn has not begun after `seconds`, end the run without waiting `CANCEL_TIMEOUT_S`.
        Do nothing if the turn ends within `seconds`, or if `seconds` is infinite.
        """
        if seconds == math.inf:
            return
        await trio.sleep(seconds)
        if self.stop_reason is not None:
            return
        if self.decide(TIMED_OUT):
            self.error = f"timed out after {seconds:g} s (--timeout)"
        if self.cancel is not None:
            self.cancel()
            await trio.sleep(CANCEL_TIMEOUT_S)
        self.scope.cancel()

    async def write(self, queue: SendQueue, written: trio.Event) -> None:
        """Write the data in `queue` (to stdout or stderr) until the queue is closed.

        If writing fails, end the run. Set `written` at the end, even if writing has failed.
        """
        try:
            await queue.run()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            if not self.decide(FAILED) and self.status == 0:
                # A status of 0 promises that the output is complete.
                self.status = FAILED
            cause = error.__cause__
            # For EPIPE there is no message: the reader has closed the pipe on purpose, as `head`
            # does.
            if not (isinstance(cause, OSError) and cause.errno == errno.EPIPE):
                self.write_error = f"the output cannot be written: {error}"
            self.scope.cancel()
        written.set()
