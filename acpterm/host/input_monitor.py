"""Detection of programs that wait for input, to distinguish a prompt from a slow program.

`is_waiting` checks one terminal. `stopped_program` finds a program that was stopped because it used
the terminal from the background. If there was output or input within the last `QUIET_S` seconds,
the program is treated as not waiting, without a check: the program may not have read the input yet.
While the event bus has subscriptions, `InputMonitor` checks all running terminals every `PERIOD_S`
seconds, and publishes an event for each program that has begun or stopped waiting, or was stopped.
"""

import time
from typing import Final

import trio

from acpterm.host.entry import TerminalEntry
from acpterm.host.events import EventBus
from acpterm.host.registry import TerminalRegistry
from acpterm.pty.input_wait.detect import Stopped
from acpterm.terminal.terminal import Terminal

QUIET_S: Final = 0.1
PERIOD_S: Final = 0.5
# How many terminals are checked before other tasks may run.
_BATCH: Final = 16


def is_waiting(entry: TerminalEntry) -> bool | None:
    """Return whether a terminal's program waits for input; None if that cannot be determined.

    Takes some 100 µs.
    """
    terminal = entry.terminal
    if terminal.exit is not None:
        return False
    if _is_active(terminal):
        return False
    return terminal.waits_for_input()


def stopped_program(entry: TerminalEntry, waits: bool | None) -> Stopped | None:
    """Return the program that was stopped for lack of the terminal; None if there is none.

    `waits` is the result of `is_waiting`; while a program waits, the result is None. Takes some
    30 µs for each process.
    """
    terminal = entry.terminal
    if waits or terminal.exit is not None or _is_active(terminal):
        return None
    return terminal.stopped_program()


def _is_active(terminal: Terminal) -> bool:
    last = max(terminal.timeline.last or 0, terminal.keyboard.last_typed)
    return time.monotonic() - last < QUIET_S


class InputMonitor:
    """Publishes an event on `bus` when a program begins or stops waiting for input.

    The programs are those of the terminals in `registry`.
    """

    def __init__(self, registry: TerminalRegistry, bus: EventBus) -> None:
        self._registry: Final = registry
        self._bus: Final = bus

    def check(self, entry: TerminalEntry) -> None:
        """Publish an event if a program began or stopped waiting for input since the last check.

        A program that is stopped for lack of the terminal waits, too.
        """
        before, entry.waiting = entry.waiting, is_waiting(entry)
        stopped_before, entry.stopped = entry.stopped, stopped_program(entry, entry.waiting)
        if entry.waiting and not before:
            self._bus.publish_terminal("waiting", entry)
        elif entry.stopped and not stopped_before:
            self._bus.publish_terminal("stopped", entry)
        elif (
            (before or stopped_before)
            and not (entry.waiting or entry.stopped)
            and entry.terminal.exit is None
        ):
            self._bus.publish_terminal("resumed", entry)

    async def run(self) -> None:
        """Check all running terminals periodically, while the event bus has subscriptions."""
        while True:
            await trio.sleep(PERIOD_S)
            if not self._bus.has_subscribers:
                continue
            for number, entry in enumerate(self._registry):
                if entry.terminal.exit is None:
                    self.check(entry)
                if number % _BATCH == _BATCH - 1:
                    await trio.lowlevel.checkpoint()
