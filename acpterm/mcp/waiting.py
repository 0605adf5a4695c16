"""Waiting for output of a session, reading its new output, and typing into it.

A wait does not move the read position. `read_new` moves it, and returns all output since the last
result. So output that came while no call was waiting is in the next result.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal

import anyio

from acpterm.api.errors import AcptermError, RequestError
from acpterm.api.results import Output, Waited
from acpterm.api.terminal import Terminal
from acpterm.api.waiting import collect
from acpterm.mcp.call import Call
from acpterm.mcp.cropping import crop
from acpterm.mcp.patterns import ModelPattern
from acpterm.mcp.sessions import Session
from acpterm.mcp.states import View
from acpterm.mcp.tool_error import ToolError

_READS_MAX: Final = 64
"""The maximum number of further reads for one result.

A program may print faster than its output is read; then reading would never end.
"""
_REMOVE_TIMEOUT_S: Final = 2.0
# Input that the program has not taken by then is typed as soon as the program reads.
_TYPE_TIMEOUT_S: Final = 5.0


async def settle(call: Call, session: Session) -> None:
    """Wait until the output has settled: until there was no output for `settle_interval`.

    Wait for at least `min_interval` and at most `max_interval` in total, and not longer than the
    call can wait. The three intervals are settings. If the program exits or waits for input, return
    earlier.
    """
    settings = call.settings
    longest = call.limited(settings.max_interval)
    call.doing = f"waiting for output of {session.id}"
    await collect(
        session.terminal,
        session.position,
        min(settings.min_interval, longest),
        settings.settle_interval,
        longest,
    )


async def wait_until(
    call: Call,
    session: Session,
    *,
    pattern: ModelPattern | None = None,
    idle: float | None = None,
    until_input: bool | Literal["prompt"] = True,
    input_since: int = -1,
    timeout_s: float,
) -> Waited:
    """Wait until the program exits or another condition is met; the result says which.

    The other conditions are:

    - `pattern` matches the output since the last input (if `pattern` is not None).
    - There was no output for `idle` seconds (if `idle` is not None).
    - The program waits for input, or is stopped for lack of the terminal (`until_input` and
      `input_since` are as in `Terminal.wait_for`).
    - `timeout_s` seconds have passed, or `call` has blocked as long as a tool call may
      (`Call.remaining` is 0).
    """
    call.doing = f"waiting for {session.id}"
    return await session.terminal.wait_for(
        pattern,
        since=session.input_position if pattern is not None else session.position,
        idle=idle,
        until_input=until_input,
        input_since=input_since,
        timeout=call.limited(timeout_s),
    )


async def read_all(terminal: Terminal, since: int) -> tuple[str, int, Output]:
    """Return the text from the position `since` on, the number of lost bytes, and an `Output`.

    The text may need several reads. The `Output` is that of the last read: its `position` is the
    end of the text.
    """
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


async def read_new(call: Call, session: Session, waited: Waited | None = None) -> View:
    """Return the output since the last result, and move the read position to its end.

    `waited` is the result of the wait before this read, if there was one. If the pattern of that
    wait has matched, the view's `matched` is the matched text.
    """
    since = session.position
    text, lost, output = await read_all(session.terminal, since)
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
    if text:
        session.prompt = text.rpartition("\n")[2].strip()
    matched = waited.match.group() if waited is not None and waited.match is not None else None
    return View(
        text=text,
        cropped=crop(text, call.settings.crop_output),
        since=since,
        position=output.position,
        lost=lost,
        exit=output.exit,
        is_waiting=is_waiting,
        hides_input=info is not None and info.hides_input,
        stopped=output.stopped,
        waiting_program=output.waiting_program,
        prompt=session.prompt,
        matched=matched,
    )


async def type_into(
    session: Session, text: str | None, keys: list[str] | str | None = None
) -> None:
    """Type text and then keys into a session.

    Later waits search for their patterns only in the output that follows this input. `keys` are
    names of keys, in a list or separated by blanks. Raises `ToolError` if a name is unknown (then
    nothing is typed), or if the host refuses the input. The error says what was typed.

    The text and the keys are two writes: some programs take Enter for a part of pasted text if they
    read it together with the text.
    """
    names = keys.split() if isinstance(keys, str) else (keys or [])
    typed = "nothing was"
    try:
        pressed = await session.terminal.encode_keys(*names)
        now = await session.terminal.read(session.position, max_bytes=1)
        if now.exit is None:
            session.input_position = (await session.terminal.info()).position
            session.reported_waiting = -1
        if text:
            with anyio.move_on_after(_TYPE_TIMEOUT_S):
                await session.terminal.write(text)
            typed = "the text was typed, but no keys were"
        if pressed:
            with anyio.move_on_after(_TYPE_TIMEOUT_S):
                await session.terminal.write(pressed)
    except (RequestError, ValueError) as error:
        raise ToolError(f"{typed} typed into {session.id}: {error}") from error


@asynccontextmanager
async def removed_on_failure(call: Call, session: Session) -> AsyncIterator[None]:
    """Remove the session if the block fails or is cancelled, since the client has no id for it."""
    try:
        yield
    except BaseException:
        with anyio.move_on_after(_REMOVE_TIMEOUT_S, shield=True):
            with suppress(AcptermError):  # the error of the block is reported instead
                await call.sessions.remove(session)
        raise
