"""How a run of `acpterm prompt` ends, at whose hand, and with which exit status.

The first to know decides: the turn's own end, a signal, the time that was over, a stdout that
cannot be written to. What comes later can only hurry the end.
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
# Seconds that an agent has to end a turn that timed out.
CANCEL_TIMEOUT_S: Final = 2.0

_STATUS: Final = {"end_turn": 0, "cancelled": CANCELLED}


class Outcome:
    """What becomes of a run. `notice` is called with what the person is to know meanwhile."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self.scope: Final = trio.CancelScope()
        """Of the run: cancelled, the agent is ended."""
        self.cancel: Callable[[], None] | None = None
        """Has the agent end its turn; None while there is none."""
        self.status = FAILED
        self.stop_reason: str | None = None
        """How the turn ended, if it has."""
        self.error: str | None = None
        """What was wrong, if anything."""
        self.unwritten: str | None = None
        """Why what was printed has not been written, if it has not."""
        self._notice = notice

    def turn_ended(self, reason: str, *, refusals: int = 0) -> None:
        """Take the turn's end. Who ended it before decides on the status.

        `refusals`: how many permissions were refused, if the agent did nothing beside.
        """
        self.stop_reason = reason
        # All may be over since nothing can be printed.
        if self.status == FAILED and not self.scope.cancel_called:
            self.status = _STATUS.get(reason, FAILED)
            if reason == "cancelled":
                self.error = "the agent says that the turn was cancelled"
            elif self.status == 0 and refusals:
                self.status = NOT_ALLOWED
                what = "1 request was" if refusals == 1 else f"{refusals} requests were"
                self.error = (
                    f"{what} refused and nothing was done: --allow all allows what the agent asks "
                    "for, --allow reads what it calls reading or searching"
                )

    async def watch(self, signals: AsyncIterator[int]) -> None:
        """Take the signals that end it: a first SIGINT politely."""
        async for number in signals:
            if self.stop_reason is not None:
                self.scope.cancel()
                continue
            polite = number == signal.SIGINT and self.status != CANCELLED
            self.status = 128 + number
            if polite and self.cancel is not None:
                self.cancel()
                self._notice("cancelled; Ctrl-C once more ends the agent")
            else:
                self.error = self.error or f"ended by {signal.Signals(number).name}"
                self.scope.cancel()

    async def expire(self, seconds: float) -> None:
        """Cancel when the time is over, and end the agent if that does not help."""
        if seconds == math.inf:
            return
        await trio.sleep(seconds)
        if self.stop_reason is not None:
            return
        self.status = TIMED_OUT
        self.error = f"timed out after {seconds:g} s (--timeout)"
        if self.cancel is not None:
            self.cancel()
            await trio.sleep(CANCEL_TIMEOUT_S)
        self.scope.cancel()

    async def write(self, outbox: SendQueue, written: trio.Event) -> None:
        """Print; when that cannot be done any more, all is over."""
        try:
            await outbox.run()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.status = FAILED
            cause = error.__cause__
            # Whoever closed it, as `head` does, knows.
            if not (isinstance(cause, OSError) and cause.errno == errno.EPIPE):
                self.unwritten = f"what is to be said cannot be written: {error}"
            self.scope.cancel()
        written.set()
