"""Waiting for output of a session, reading its new output, and typing into it.

A wait does not move the read position. `read_new` moves it, and returns all output since the last
result. So output that came while no call was waiting is in the next result.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal, NamedTuple

import anyio

from acpterm.api.errors import AcptermError, RequestError
from acpterm.api.results import Output, Reason
from acpterm.api.terminal import Terminal
from acpterm.api.waiting import collect
from acpterm.mcp.call import Call
from acpterm.mcp.cropping import Lost, crop, lost_before
from acpterm.mcp.patterns import ModelPattern, NewOutput
from acpterm.mcp.sessions import TerminalSession, unless_drawn
from acpterm.mcp.states import View, quoted
from acpterm.mcp.tool_error import ToolError

BACKGROUND_WAIT_S: Final = 0.5
"""How long a call waits for a command in the background, to report one that fails at once."""
# A program may print faster than its output is read; then reading would never end.
_READS_MAX: Final = 64
_LEAVES_SCREEN: Final = re.compile(rb"\x1b\[\?(?:1049|1047|47)l")
# How much of the output that results have shown is searched, and of the last input is kept.
_SHOWN_BYTES_MAX: Final = 1 << 16
_TYPED_CHARS_MAX: Final = 4096
_REMOVE_TIMEOUT_S: Final = 2.0
# Input that the program has not taken by then is typed as soon as the program reads.
_TYPE_TIMEOUT_S: Final = 5.0


class Ended(NamedTuple):
    reason: Reason
    matched: str | None = None  # what the pattern has matched
    end: int = 0  # the index of the match's end in the output since the last input
    was_shown: bool = False  # whether earlier results had shown the match


async def settle(call: Call, session: TerminalSession) -> None:
    """Wait until the output has settled, as the settings for intervals say.

    Return earlier if the program exits, waits for input or has drawn the whole screen.
    """
    settings = call.settings
    longest = call.limited(settings.max_interval)
    least = min(settings.min_interval, longest)
    call.doing = f"waiting for output of {session.id}"

    async def wait() -> None:
        await collect(session.terminal, session.position, least, settings.settle_interval, longest)

    await unless_drawn(session, least, wait)


async def wait_for_end(call: Call, session: TerminalSession, timeout_s: float) -> None:
    async def wait() -> None:
        await wait_until(call, session, timeout_s=timeout_s)

    await unless_drawn(session, call.settings.min_interval, wait)


async def wait_until(
    call: Call,
    session: TerminalSession,
    *,
    pattern: ModelPattern | None = None,
    since: int | None = None,
    idle: float | None = None,
    until_input: bool | Literal["prompt"] = True,
    input_since: int = -1,
    timeout_s: float,
) -> Ended:
    """Wait until the program exits or another condition is met; the result says which.

    The conditions are those of `Terminal.wait_for`. `pattern` is searched in all output after
    `since`. If that is None, it is searched in new output, and in what results have shown since
    the last input or match.
    """
    call.doing = f"waiting for {session.id}"
    new: NewOutput | None = None
    is_new = since is None
    if pattern is None:
        since = session.position
    elif since is None:
        new, since = await _new_output(session, pattern)
    else:
        new = NewOutput(pattern)
    waited = await session.terminal.wait_for(
        new,
        since=since,
        idle=idle,
        until_input=until_input,
        input_since=input_since,
        timeout=call.limited(timeout_s),
    )
    match = waited.match
    if new is None or match is None:
        return Ended(waited.reason)
    matched = f"matched {quoted(match.group())}"
    if new.was_shown:
        begin = waited.text.rfind("\n", 0, match.start()) + 1
        line = waited.text[begin : match.end()].strip()
        matched = f"an earlier result has shown {quoted(line)}"
    # Only an index in the text since the last input can be compared with later ones.
    end = match.end() if is_new else 0
    return Ended(waited.reason, matched, end, new.was_shown)


async def _new_output(session: TerminalSession, pattern: ModelPattern) -> tuple[NewOutput, int]:
    since = session.search_position
    shown = session.position - since
    if shown <= 0:
        return NewOutput(pattern, typed=session.typed), since
    matched = session.matched
    if shown > _SHOWN_BYTES_MAX:
        shown, since, matched = _SHOWN_BYTES_MAX, session.position - _SHOWN_BYTES_MAX, shown
    text = (await session.terminal.read(since, max_bytes=shown)).text
    return NewOutput(pattern, shown=len(text), matched=matched, typed=session.typed), since


async def read_all(terminal: Terminal, since: int) -> tuple[str, int, Output]:
    """Return the text from `since` on, the number of lost bytes, and the last read."""
    output = await terminal.read(since)
    texts, lost = [output.text], output.lost
    for _ in range(_READS_MAX):
        if output.position == since:
            break
        since = output.position
        output = await terminal.read(since)
        texts.append(output.text)
        lost += output.lost
    return "".join(texts), lost, output


async def _after_screen(session: TerminalSession) -> int:
    """Return the position from which the new output is text, not a drawn screen."""
    since = session.position
    if session.is_full_screen and not await session.full_screen():
        drawn = await session.terminal.read_raw(since)
        left = list(_LEAVES_SCREEN.finditer(drawn.data))
        if left:
            return drawn.position - len(drawn.data) + left[-1].end()
    return since


async def read_new(call: Call, session: TerminalSession, ended: Ended | None = None) -> View:
    """Return the output since the last result (or the screen), and move the read position."""
    since = await _after_screen(session)
    text, lost, output = await read_all(session.terminal, since)
    screen = None if output.exit is not None else await session.full_screen()
    is_waiting = bool(output.waiting_for_input)
    info = await session.terminal.info() if is_waiting else None
    session.position = output.position
    is_idle = info is not None and not info.waiting_for_input
    session.report_waiting(waits=is_waiting or output.stopped is not None, is_idle=is_idle)
    session.exit = output.exit
    if session.unread:
        # Text after a gap is not the end of the line before the gap.
        text = f"{session.unread}\n{text}" if lost else session.unread + text
        session.unread = ""
    text = session.clean(text)
    gap = None
    if screen is not None:
        text = screen.text()
    elif lost and since:
        gap = Lost(lost)
    elif lost:
        whole = await session.terminal.output()
        gap = lost_before(text, output.position, whole.beginning, whole.total_lines)
    if text:
        session.prompt = text.rpartition("\n")[2].strip()
    matched = None if ended is None else ended.matched
    if ended is not None:
        session.matched = max(session.matched, ended.end)
    return View(
        text=text,
        cropped=crop(text, call.settings.crop_output, gap),
        since=since,
        position=output.position,
        lost=gap,
        exit=output.exit,
        is_waiting=is_waiting,
        hides_input=info is not None and info.hides_input,
        stopped=output.stopped,
        waiting_program=output.waiting_program,
        prompt=session.prompt,
        matched=matched,
        screen_size=None if screen is None else f"{screen.cols}x{screen.lines}",
    )


async def type_into(
    session: TerminalSession, text: str | None, keys: list[str] | str | None = None
) -> None:
    """Type text and then keys (names, or names separated by blanks) into a session.

    Raises `ToolError` if a name is unknown, or if the host refuses the input.
    """
    names = keys.split() if isinstance(keys, str) else (keys or [])
    typed = "nothing was"
    try:
        pressed = await session.terminal.encode_keys(*names)
        now = await session.terminal.read(session.position, max_bytes=1)
        if now.exit is not None:
            raise ToolError("nothing was typed: the program has ended")
        info = await session.terminal.info()
        session.search_position, session.matched = info.position, 0
        session.typed = "" if info.hides_input else (text or "")[-_TYPED_CHARS_MAX:]
        session.reported_waiting = -1
        if text:
            with anyio.move_on_after(_TYPE_TIMEOUT_S):
                await session.terminal.write(text)
            typed = "the text was typed, but no keys were"
        if pressed:
            with anyio.move_on_after(_TYPE_TIMEOUT_S):
                await session.terminal.write(pressed)
    except (RequestError, ValueError) as error:
        # The model does not know the id that the host uses.
        why = str(error).replace(session.terminal.id, session.id)
        raise ToolError(f"{typed} typed into {session.id}: {why}") from error


@asynccontextmanager
async def removed_on_failure(call: Call, session: TerminalSession) -> AsyncIterator[None]:
    """Remove the session if the block fails: the client has no id for it."""
    try:
        yield
    except BaseException:
        with anyio.move_on_after(_REMOVE_TIMEOUT_S, shield=True):
            with suppress(AcptermError):  # the error of the block is reported instead
                await call.sessions.remove(session)
        raise
