"""Waits until a pattern matches the output, output stops, or the program waits for input.

Regular expressions run here, in the client's process, and on a limited part of the output: the last
`TEXT_CHARS_MAX` characters are retained, and a match that begins more than `OVERLAP_CHARS` before
the newest part is not found.

Nothing is lost when a wait is cancelled or times out: reading does not change the terminal, and
`Waited.position` is the end of `Waited.text`.
"""

import math
import re
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, Literal, Protocol

import anyio

from acpterm.api.results import Output, Reason, Waited

if TYPE_CHECKING:
    from acpterm.api.terminal import Terminal

TEXT_CHARS_MAX: Final = 1 << 20
OVERLAP_CHARS: Final = 64 * 1024
INPUT_AFTER_S: Final = 0.2
"""A program that waits for input earlier than this may not have read the latest input yet."""
# A program that reads its stdin beside its work prints more soon; after a prompt, nothing comes.
_PROMPT_QUIET_S: Final = 2.0
# The longest wait of one request.
_READ_WAIT_S: Final = 20.0
# Without a pattern, not all output of a flood has to be read: pause after each large part.
_LARGE_CHARS: Final = 64 * 1024
_PAUSE_S: Final = 0.1
# How much later than its limit a wait ends if the daemon does not answer.
_GRACE_S: Final = 1.0


class Searches(Protocol):
    """An object that searches text, such as a compiled regular expression."""

    def search(
        self, text: str, pos: int, /
    ) -> re.Match[str] | Awaitable[re.Match[str] | None] | None:
        """Return the first match that begins at `pos` or later; None if there is none.

        The method may also be async.
        """


class _Seen:
    """The end of the output that a wait has read: at most `TEXT_CHARS_MAX` characters."""

    def __init__(self, since: int | None) -> None:
        self.since = since
        self.text = ""
        self.lost = 0
        self.last: Output | None = None
        # Where the next search begins in `text`.
        self._searched = 0

    def add(self, output: Output) -> bool:
        """Append the output of a read; return whether the read had new output."""
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

    @property
    def has_prompt(self) -> bool:
        """Whether the output ends with an incomplete line."""
        return bool(self.text.rpartition("\n")[2].strip())

    async def search(self, pattern: Searches) -> re.Match[str] | None:
        """Return the first match that begins in the newest output or shortly before, or None."""
        found = pattern.search(self.text, self._searched)
        return await found if isinstance(found, Awaitable) else found

    def result(self, reason: Reason, match: re.Match[str] | None = None) -> Waited:
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
    pattern: str | Searches | None = None,
    *,
    since: int | None = None,
    idle: float | None = None,
    until_input: bool | Literal["prompt"] = False,
    input_since: int = -1,
    timeout: float | None = None,
) -> Waited:
    """Wait for a condition: see `Terminal.wait_for`."""
    compiled = re.compile(pattern, re.MULTILINE) if isinstance(pattern, str) else pattern
    limits = _Limits(
        least=0.0,
        idle=math.inf if idle is None else idle,
        input_after=0.0 if until_input else math.inf,
        most=math.inf if timeout is None else timeout,
        prompt_only=until_input == "prompt",
        input_since=input_since,
    )
    return await _wait(terminal, compiled, since, limits)


async def collect(
    terminal: "Terminal",
    since: int | None,
    min_interval: float = 1.0,
    settle_interval: float = 2.0,
    max_interval: float = 30.0,
) -> Waited:
    """Wait for the reaction of a program to input, and return the output after `since`.

    `since` is a position; None means the oldest retained byte. The wait ends in these cases:

    - The program exits.
    - The program waits for input, or is stopped, and `INPUT_AFTER_S` or
      `min_interval` seconds have passed, whichever is shorter.
    - There was no output for `settle_interval` seconds, and `min_interval` seconds have passed.
    - `max_interval` seconds have passed.
    """
    limits = _Limits(
        least=min_interval,
        idle=settle_interval,
        input_after=min(min_interval, INPUT_AFTER_S),
        most=max_interval,
    )
    return await _wait(terminal, None, since, limits)


class _Limits:
    """The conditions of a wait that depend on time, in seconds; inf means never.

    After `least`, the wait ends as soon as there was no output for `idle`; after `input_after`,
    as soon as the program waits for input (with output after `input_since`, and with
    `prompt_only` after a prompt); after `most`, in any case.
    """

    def __init__(
        self,
        least: float,
        idle: float,
        input_after: float,
        most: float,
        *,
        prompt_only: bool = False,
        input_since: int = -1,
    ) -> None:
        self.began: Final = anyio.current_time()
        self.last_output = self.began
        self.end: Final = self.began + most
        self._least = least
        self._idle = idle
        self._input_at = self.began + input_after
        self._prompt_only = prompt_only
        self._input_since = input_since

    def watches_input(self, now: float, seen: _Seen) -> bool:
        return now >= self._input_from(seen)

    def _input_from(self, seen: _Seen) -> float:
        if (seen.since or 0) <= self._input_since:
            return math.inf
        if not self._prompt_only:
            return self._input_at
        quiet_at = self.last_output + _PROMPT_QUIET_S
        return max(self._input_at, quiet_at) if seen.has_prompt else math.inf

    @property
    def _quiet_at(self) -> float:
        return max(self.began + self._least, self.last_output + self._idle)

    def next_at(self, now: float, seen: _Seen) -> float:
        """Return until when the next read may wait for output."""
        until = min(self._quiet_at, self.end, now + _READ_WAIT_S)
        return until if self.watches_input(now, seen) else min(until, self._input_from(seen))

    def reason(self, output: Output, now: float, seen: _Seen) -> Reason | None:
        """Return why the wait ends after a read without new output; None if it continues."""
        if output.exit is not None:
            return "exit"
        if output.stopped and now >= self._input_at:
            return "input"
        if output.waiting_for_input and self.watches_input(now, seen):
            return "input"
        if now >= self.end:
            return "timeout"
        return "idle" if now >= self._quiet_at else None


async def _wait(
    terminal: "Terminal", pattern: Searches | None, since: int | None, limits: _Limits
) -> Waited:
    seen = _Seen(since)
    with anyio.move_on_at(limits.end + _GRACE_S):
        while True:
            now = anyio.current_time()
            output = await terminal.read(
                seen.since,
                wait=max(0.0, limits.next_at(now, seen) - now),
                until_input=limits.watches_input(now, seen),
            )
            has_more = seen.add(output)
            now = anyio.current_time()
            if not has_more:
                if (reason := limits.reason(output, now, seen)) is not None:
                    return seen.result(reason)
                continue
            limits.last_output = now
            if pattern is not None and (match := await seen.search(pattern)) is not None:
                return seen.result("match", match)
            if now >= limits.end:
                break
            if pattern is None and len(output.text) >= _LARGE_CHARS:
                await anyio.sleep(min(_PAUSE_S, limits.end - now))
    return seen.result("timeout")
