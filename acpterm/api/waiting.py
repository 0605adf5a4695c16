"""The waits for output: until a pattern matches, nothing comes any more, or input is awaited.

Regular expressions run here, in the client's process, and on a limited part of the output: of what
has come, at most `TEXT_CHARS_MAX` characters are kept, and a match that begins more than
`OVERLAP_CHARS` before the newest part is not found.

Nothing is lost when a wait is cancelled or times out: reading does not change the terminal, and
`Waited.position` is the end of `Waited.text`.
"""

import math
import re
from typing import TYPE_CHECKING, Final

import anyio

from acpterm.api.results import Output, Reason, Waited

if TYPE_CHECKING:
    from acpterm.api.terminal import Terminal

TEXT_CHARS_MAX: Final = 1 << 20
OVERLAP_CHARS: Final = 64 * 1024
# Until then, a program that waited for input before may not have read it yet.
_INPUT_AFTER_S: Final = 0.2
# The longest wait of one request.
_READ_WAIT_S: Final = 20.0
# How much later than its limit a wait ends if the daemon does not answer.
_GRACE_S: Final = 1.0


class _Seen:
    """The output that a wait has read."""

    def __init__(self, since: int | None) -> None:
        self.since = since
        self.text = ""
        self.lost = 0
        self.last: Output | None = None
        # Where the next search begins in `text`.
        self._searched = 0

    def add(self, output: Output) -> bool:
        """Append output; return whether there was any."""
        has_more = bool(output.text) or output.position > (self.since or 0)
        self.since, self.last = output.position, output
        self.lost += output.lost
        self._searched = max(0, len(self.text) - OVERLAP_CHARS)
        self.text += output.text
        if (over := len(self.text) - TEXT_CHARS_MAX) > 0:
            self.lost += len(self.text[:over].encode())
            self.text = self.text[over:]
            self._searched = max(0, self._searched - over)
        return has_more

    def search(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return the first match that the newest output may have made possible."""
        return pattern.search(self.text, self._searched)

    def result(self, reason: Reason, match: re.Match[str] | None = None) -> Waited:
        """Return the result of a wait that ended for `reason`."""
        last = self.last
        return Waited(
            reason,
            match,
            self.text,
            self.since or 0,
            self.lost,
            None if last is None else last.exit,
            None if last is None else last.waiting_for_input,
        )


async def wait_for(
    terminal: "Terminal",
    pattern: str | re.Pattern[str] | None = None,
    *,
    since: int | None = None,
    idle: float | None = None,
    until_input: bool = False,
    timeout: float | None = None,
) -> Waited:
    """Wait as `Terminal.wait_for` does."""
    compiled = re.compile(pattern, re.MULTILINE) if isinstance(pattern, str) else pattern
    return await _wait(
        terminal,
        compiled,
        since=since,
        least=0.0,
        idle=math.inf if idle is None else idle,
        until_input=until_input,
        input_after=0.0,
        most=math.inf if timeout is None else timeout,
    )


async def collect(
    terminal: "Terminal",
    since: int | None,
    min_interval: float = 1.0,
    settle_interval: float = 2.0,
    max_interval: float = 30.0,
) -> Waited:
    """Wait for the reaction of a program to what was typed, and return the output after `since`.

    Wait at least `min_interval` seconds, then until nothing has come for `settle_interval` seconds,
    and at most `max_interval` seconds. End at once when the program exits, and soon when it waits
    for input.
    """
    return await _wait(
        terminal,
        None,
        since=since,
        least=min_interval,
        idle=settle_interval,
        until_input=True,
        input_after=min(min_interval, _INPUT_AFTER_S),
        most=max_interval,
    )


async def _wait(
    terminal: "Terminal",
    pattern: re.Pattern[str] | None,
    *,
    since: int | None,
    least: float,
    idle: float,
    until_input: bool,
    input_after: float,
    most: float,
) -> Waited:
    """Read until one of the conditions holds; times are seconds, and inf for never.

    `least` is the time before which neither `idle` nor anything but an exit, a match or input ends
    the wait; `input_after` that before which input does not; `most` that at which the wait ends.
    """
    began = last_output = anyio.current_time()
    seen = _Seen(since)
    with anyio.move_on_at(began + most + _GRACE_S):
        while True:
            now = anyio.current_time()
            quiet_at = max(began + least, last_output + idle)
            until = min(quiet_at, began + most, now + _READ_WAIT_S)
            watches_input = until_input and now >= began + input_after
            if until_input and not watches_input:
                until = min(until, began + input_after)
            output = await terminal.read(
                seen.since, wait=max(0.0, until - now), until_input=watches_input
            )
            has_more = seen.add(output)
            now = anyio.current_time()
            if has_more:
                last_output = now
                if pattern is not None and (match := seen.search(pattern)) is not None:
                    return seen.result("match", match)
                if now < began + most:
                    continue
            if output.exit is not None and not has_more:
                return seen.result("exit")
            if watches_input and output.waiting_for_input and now >= began + input_after:
                return seen.result("input")
            if now >= began + most:
                return seen.result("timeout")
            if now >= max(began + least, last_output + idle):
                return seen.result("idle")
    return seen.result("timeout")
