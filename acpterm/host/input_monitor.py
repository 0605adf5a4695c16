"""Detection of programs that wait for input, to distinguish a prompt from a slow program.

`input_wait` checks one terminal. If there was output or input within the last `QUIET_S` seconds,
the program is treated as not waiting, without a check: the program may not have read the input yet.
While the event bus has subscriptions, `InputMonitor` checks all running terminals every `PERIOD_S`
seconds, and publishes an event for each program that has begun or stopped asking, or was stopped. A
shell at its prompt, an editor and a pager wait, but ask nothing: they cause no event.
"""

import time
from typing import Final

import trio

from acpterm.host.entry import InputWait, TerminalEntry
from acpterm.host.events import EventBus
from acpterm.host.registry import TerminalRegistry
from acpterm.pty.input_wait import waiter

QUIET_S: Final = 0.1
PERIOD_S: Final = 0.5
# How many terminals are checked before other tasks may run.
_BATCH: Final = 16


def input_wait(entry: TerminalEntry) -> InputWait:
    """Return whether, and which, program of a terminal waits for input. Takes some 100 µs."""
    terminal = entry.terminal
    if terminal.exit is not None:
        return InputWait(False)
    last = max(terminal.timeline.last or 0, terminal.keyboard.last_typed)
    if time.monotonic() - last < QUIET_S:
        return InputWait(False)
    pid = terminal.waiting_process()
    if pid:
        found = waiter.waiter_of(pid, reads_lines=terminal.reads_lines)
        return InputWait(True, found.sentence, is_idle=not found.asks)
    # While a program waits, a stopped one is a job of a shell.
    return InputWait(None if pid is None else False, None, terminal.stopped_program())


class InputMonitor:
    """Publishes an event when a program begins or stops waiting for input."""

    def __init__(self, registry: TerminalRegistry, bus: EventBus) -> None:
        self._registry: Final = registry
        self._bus: Final = bus

    def check(self, entry: TerminalEntry) -> None:
        """Publish an event if a program has begun or stopped waiting, or was stopped."""
        before, entry.waiting = entry.waiting, input_wait(entry)
        now = entry.waiting
        if now.asks and before.asks and entry.terminal.keyboard.last_line > entry.asked_at:
            # The program has read a line and asks again: two events, as if it had been seen to run.
            self._bus.publish_terminal("resumed", entry)
            self._publish_waiting(entry)
        elif now.asks and not before.asks:
            self._publish_waiting(entry)
        elif now.stopped and not before.stopped:
            self._bus.publish_terminal("stopped", entry)
        elif before.needs_user and not now.needs_user and entry.terminal.exit is None:
            self._bus.publish_terminal("resumed", entry)

    def _publish_waiting(self, entry: TerminalEntry) -> None:
        entry.asked_at = time.monotonic()
        self._bus.publish_terminal("waiting", entry)

    async def run(self) -> None:
        while True:
            await trio.sleep(PERIOD_S)
            if not self._bus.has_subscribers:
                continue
            for number, entry in enumerate(self._registry):
                if entry.terminal.exit is None:
                    self.check(entry)
                if number % _BATCH == _BATCH - 1:
                    await trio.lowlevel.checkpoint()
