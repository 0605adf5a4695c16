"""Prints a terminal's output: as text, as text with times, or as raw bytes (`acpterm logs`).

`stay` means that the live output is printed too, until the program ends. Missing output is reported
on stderr.

If stdout is a terminal, the current, incomplete line is printed too. When the program overwrites
that line, a carriage return and the new content are printed. This works only for lines that fit the
width: a longer line that was overwritten is printed again once it is complete. If stdout is not a
terminal, only complete lines are printed, so a progress bar is a single line.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from acpterm.acp.user_api import TerminalInfo
from acpterm.commands.blocking_client import BlockingClient
from acpterm.commands.output import coloured
from acpterm.commands.output.blocking_stdout import note, put, window_size
from acpterm.commands.output.read import Since, TimedPart, read_output
from acpterm.commands.output.text_follow import UNKNOWN, TextStream, follow_text
from acpterm.runtime.lines import split_lines
from acpterm.runtime.sanitize import escape_invisible_text
from acpterm.terminal.text.slices import resync


def last_lines(text: str, number: int) -> str:
    """Return the last `number` lines of a text; all of it if it has fewer."""
    if not number:
        return ""
    at = len(text) - text.endswith("\n")
    for _ in range(number):
        at = text.rfind("\n", 0, at)
        if at < 0:
            return text
    return text[at + 1 :]


class Lines:
    """Converts each change of a text to what is printed; `width` is None unless it is a window."""

    def __init__(self, width: Callable[[], int] | None) -> None:
        self._width = width
        # The current line as it was printed, and whether the line has changed since in a way that
        # could not be printed.
        self._printed = ""
        self._stale = False
        # The beginning of the current line that is treated as printed, but was skipped.
        self._skipped = ""

    def begin(self, skipped: str) -> None:
        self._printed = self._skipped = skipped

    def show(self, complete: str, line: str) -> str:
        """Return what to print; the first line in `complete` replaces the last call's `line`."""
        output = ""
        if complete:
            first, newline, rest = complete.partition("\n")
            output = self._update(first, complete=True) + newline + rest
            self._printed, self._stale, self._skipped = "", False, ""
        if self._width is not None:
            output += self._update(line, complete=False)
        return output

    def finish(self, line: str) -> str:
        """Return what to print to end the current, incomplete line, whose content is `line`."""
        if line == self._printed == self._skipped and not self._stale:
            return ""
        output = self._update(line, complete=True) + "\n"
        self._printed, self._stale, self._skipped = "", False, ""
        return output

    def _update(self, line: str, *, complete: bool) -> str:
        """Return what to print so that stdout shows `line`; "" if it cannot be until complete."""
        printed = self._printed
        if not self._stale and line.startswith(printed):
            self._printed = line
            return line[len(printed) :]
        width = 0 if self._width is None else self._width()
        if not self._stale and max(_columns(printed), _columns(line)) < width:
            self._printed = line
            return f"\r{' ' * _columns(printed)}\r{line}"
        self._stale = not complete
        if complete:
            self._printed = line
            return f"\n{line}"
        return ""


def _columns(text: str) -> int:
    # An upper bound.
    return len(text) + sum(not char.isascii() for char in text) + 7 * text.count("\t")


@contextmanager
def while_stdout_is_read(client: BlockingClient) -> Iterator[None]:
    """End the block, without an error, as soon as stdout has no reader."""
    client.watches_stdout = True
    with suppress(BrokenPipeError):
        yield


def print_text(
    client: BlockingClient,
    terminal: str,
    *,
    stay: bool,
    since: Since,
    tail: int | None,
    colour: bool = False,
) -> None:
    """Print a terminal's current text from `since` on, or only its last `tail` lines."""
    # In a window, characters that reorder or hide text are printed as escapes.
    escaped = coloured.escape if colour else escape_invisible_text
    printed = escaped if os.isatty(1) else str
    first = 0 if colour and since == Since() else since.position
    info = client.terminal_request("get", terminal, TerminalInfo)
    lines = Lines((lambda: window_size()[0]) if os.isatty(1) else None)
    line = ""
    follower = follow_text(
        client,
        info.terminal_id,
        since=first,
        since_time=since.time,
        stay=stay,
        stream=coloured.ColouredStream if colour else TextStream,
    )
    with while_stdout_is_read(client):
        for update in follower:
            complete, current, lost = printed(update.over), printed(update.line), update.lost
            if tail is not None:
                text = complete + current
                kept = last_lines(text, tail)
                complete = kept[: max(0, len(kept) - len(current))]
                if kept != text:
                    lost = 0
                    if colour and complete:
                        complete = coloured.coloured_tail(text, complete + current)
                        complete = complete[: len(complete) - len(current)]
                if not tail:
                    lines.begin(current)
                tail = None
            if lost:
                put(lines.finish(line).encode())
                note(missing(lost))
            line = current
            put(lines.show(complete, current).encode())
        put(lines.finish(line).encode())
        if colour:
            put(b"\x1b[m")


def print_raw(
    client: BlockingClient, terminal: str, *, stay: bool, since: Since, tail: int | None
) -> None:
    """Print a terminal's bytes from `since` on, unchanged, or only its last `tail` lines."""
    info = client.terminal_request("get", terminal, TerminalInfo)
    parts = (
        (part.position, part.data, missing(part.lost) if part.lost else "")
        for part in _read(client, info, since, stay=stay)
    )
    _print_parts(client, info, parts, tail)


def print_stamped(
    client: BlockingClient, terminal: str, *, stay: bool, since: Since, tail: int | None
) -> None:
    """Print like `print_text`, but begin each line with the time at which it was completed."""
    # Text is retained for longer than bytes, but only bytes have times: the rest is left out.
    printed = escape_invisible_text if os.isatty(1) else str
    info = client.terminal_request("get", terminal, TerminalInfo)
    parts = (
        (position, "".join(map(printed, lines)).encode(), gap)
        for position, lines, gap in _stamped(client, info, since, stay=stay)
    )
    # Without `stay`, wait for the end: the incomplete line comes last, and counts as one of the
    # `tail` lines.
    _print_parts(client, info, parts, tail, to_end=not stay)


def _read(
    client: BlockingClient, info: TerminalInfo, since: Since, *, stay: bool, times: bool = False
) -> Iterator[TimedPart]:
    first = 0 if since == Since() else since.position
    return read_output(
        client, info.terminal_id, since=first, since_time=since.time, times=times, stay=stay
    )


def _print_parts(
    client: BlockingClient,
    info: TerminalInfo,
    parts: Iterator[tuple[int, bytes, str]],
    tail: int | None,
    *,
    to_end: bool = False,
) -> None:
    """Print parts with their end positions and notes; of those up to now, only `tail` lines."""
    held = b""
    with while_stdout_is_read(client):
        for position, data, gap in parts:
            if gap and (tail is None or position > info.position):
                note(gap)
            if tail is None:
                put(data)
                continue
            # In Latin-1 each byte is one character.
            held = last_lines((held + data).decode("latin-1"), tail).encode("latin-1")
            if position >= info.position and not to_end:
                put(held)
                tail, held = None, b""
        put(held)


def _stamped(
    client: BlockingClient, info: TerminalInfo, since: Since, *, stay: bool
) -> Iterator[tuple[int, list[str], str]]:
    """Yield for each part of the output its end position, the completed lines, and a note or ""."""
    stream, at, lost, untimed = TextStream(), 0, 0, 0
    for part in _read(client, info, since, stay=stay, times=True):
        data, lost = part.data, lost + part.lost
        if part.lost:
            stream, data = TextStream(), data[resync(data) :]
        # Feed bytes without a time too: they may begin a line that a byte with a time completes.
        over = split_lines(stream.feed(data))
        if part.at is not None:
            at = part.at
        elif part.position - len(part.data) >= info.position:
            # The part was printed after this command began, but its time was lost when the worker
            # was replaced.
            at = round(1000 * time.time())
        else:
            untimed += len(part.data)
            continue
        yield part.position, [f"{_stamp(at)} {line}" for line in over], _gap(lost, untimed)
        untimed = lost = 0
    # At the end, the incomplete line too.
    last = stream.finish() + stream.line
    if last and at:
        lines = (line.removesuffix("\n") for line in split_lines(last))
        yield info.position, [f"{_stamp(at)} {line}\n" for line in lines], ""
    if gap := _gap(lost, untimed):
        # Print this note even with `tail`, since it may be the only explanation for no output.
        note(gap)


def _gap(lost: int, untimed: int) -> str:
    why = "they came before the daemon's worker was replaced, and their times are unknown"
    notes = [missing(lost)] if lost else []
    if untimed:
        notes.append(f"[{untimed} bytes are left out: {why}]")
    return " ".join(notes)


def _stamp(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().isoformat(timespec="milliseconds")


def missing(lost: int) -> str:
    return "[the beginning is missing]" if lost == UNKNOWN else f"[{lost} bytes are missing here]"
