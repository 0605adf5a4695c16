"""Prints a terminal's output: as text, as text with times, or as raw bytes (`acpterm logs`).

`stay` means that the live output is printed too, until the program ends. Missing output is reported
on stderr.

If stdout is a terminal, the current, incomplete line is printed too. When the program overwrites
that line, a carriage return and the new content are printed. This works only for lines that fit the
width: a longer line that was overwritten is printed again once it is complete. If stdout is not a
terminal, only complete lines are printed, so a progress bar is a single line.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final, TypeAlias

from acpterm.acp.user_api import TerminalInfo
from acpterm.commands.blocking_client import BlockingClient
from acpterm.commands.output.blocking_stdout import note, put, window_size
from acpterm.commands.output.read import Since, TimedPart, read_output
from acpterm.commands.output.text_follow import UNKNOWN, TextStream, follow_text
from acpterm.runtime.lines import split_lines
from acpterm.runtime.sanitize import escape_invisible_text
from acpterm.terminal.text.line import ERASE_LEFT, ERASE_LINE, ERASE_RIGHT
from acpterm.terminal.text.slices import resync

# An SGR becomes a character that `Controls` takes for text, the parameters, and the final byte.
# CAN comes first, since an SGR ends any other sequence.
_MARK: Final = "\U0010fffe"
_SGR: Final = re.compile(rb"\x1b\[([0-9;:]{0,256})m")
_CUT_SGR: Final = re.compile(rb"\x1b(?:\[[0-9;:]{0,256})?\Z")
_ESCAPED_SGR: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
_MARKED: Final = re.compile(f"{_MARK}([0-9;:]*)m")
_TOKEN: Final = re.compile(f"{_MARKED.pattern}|[\b\r{ERASE_RIGHT}{ERASE_LEFT}{ERASE_LINE}]|.")
_MOVES: Final = re.compile(f"[\b\r{ERASE_RIGHT}{ERASE_LEFT}{ERASE_LINE}]")
_RESET: Final = re.compile("0*(?:;.*)?")
# Programs that never reset would otherwise let the style grow without end.
_STYLE_MAX: Final = 64
# A line in which the cursor moves is shortened to what it shows, first at this length.
_SHORTENED_MIN: Final = 512

_Style: TypeAlias = tuple[str, ...]
_Cells: TypeAlias = list[tuple[str, _Style]]


class ColouredStream(TextStream):
    """A `TextStream` whose text has the output's colours."""

    def __init__(self) -> None:
        super().__init__()
        self._cut = b""
        self._pending = ""
        self._style: _Style = ()
        self._shorten_at = _SHORTENED_MIN

    @property
    def line(self) -> str:
        return self._coloured(self._pending, self._style)[0]

    def _run(self, characters: bytes) -> str:
        data = self._cut + characters
        cut = _CUT_SGR.search(data)
        self._cut = cut[0] if cut else b""
        data = _SGR.sub(b"\x18" + _MARK.encode() + rb"\1m", data[: len(data) - len(self._cut)])
        *lines, self._pending = (self._pending + self._program(data)).split("\n")
        over = []
        for line in lines:
            text, self._style = self._coloured(line, self._style)
            over.append(f"{text}\n")
        if len(self._pending) > self._shorten_at and _MOVES.search(self._pending):
            self._pending = _shortened(self._pending, self._style)
            self._shorten_at = max(_SHORTENED_MIN, 2 * len(self._pending))
        return "".join(over)

    def _coloured(self, line: str, style: _Style) -> tuple[str, _Style]:
        """Return a line's text, which begins in `style`, and the style at its end."""
        line = line.rstrip("\r")
        if _MOVES.search(line):
            return _overwritten(line, style)
        for parameters in _MARKED.findall(line):
            style = _changed(style, parameters)
        return _MARKED.sub("\x1b[\\1m", line), style


def _overwritten(line: str, style: _Style) -> tuple[str, _Style]:
    cells, _, end = _cells(line, style)
    return _text([*cells, ("", end)], style), end


def _shortened(line: str, style: _Style) -> str:
    """Return a line that shows the same as `line`, and ends at the same column and style."""
    cells, column, end = _cells(line, style)
    if column > len(cells):  # after an erasure: no move leads there
        return line
    text = _text([*cells, ("", end)], style).replace("\x1b[", _MARK)
    return text + "\b" * (len(cells) - column)


def _cells(line: str, style: _Style) -> tuple[_Cells, int, _Style]:
    """Return the cells that `line` leaves, the cursor's column, and the style at the end."""
    cells: _Cells = []
    column = 0
    for token in _TOKEN.finditer(line):
        if token[1] is not None:
            style = _changed(style, token[1])
        elif token[0] in "\b\r":
            column = max(0, column - 1) if token[0] == "\b" else 0
        elif token[0] == ERASE_RIGHT:
            del cells[column:]
        elif token[0] == ERASE_LEFT:
            cells[: column + 1] = [(" ", style)] * min(column + 1, len(cells))
        elif token[0] == ERASE_LINE:
            cells.clear()
        else:
            cells += [(" ", style)] * (column - len(cells))
            cells[column : column + 1] = [(token[0], style)]
            column += 1
    return cells, column, style


def _text(cells: _Cells, shown: _Style) -> str:
    parts = []
    for char, of_char in cells:
        if of_char != shown:
            parts += ["\x1b[m", *of_char]
            shown = of_char
        parts.append(char)
    return "".join(parts)


def _changed(style: _Style, parameters: str) -> _Style:
    sequence = f"\x1b[{parameters}m"
    if _RESET.fullmatch(parameters):
        return (sequence,) if parameters.strip("0;") else ()
    return (*style, sequence)[-_STYLE_MAX:]


def escape(text: str) -> str:
    """Replace invisible and control characters by escapes, but keep colours."""
    pieces = _ESCAPED_SGR.split(text)
    return "".join(p if n % 2 else escape_invisible_text(p) for n, p in enumerate(pieces))


def coloured_tail(text: str, kept: str) -> str:
    """Return `kept`, the end of `text`, preceded by the colours with which it begins."""
    style: _Style = ()
    for sequence in _ESCAPED_SGR.findall(text[: len(text) - len(kept)]):
        style = _changed(style, sequence[2:-1])
    return "".join(style) + kept


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
    escaped = escape if colour else escape_invisible_text
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
        stream=ColouredStream if colour else TextStream,
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
                        complete = coloured_tail(text, complete + current)
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
