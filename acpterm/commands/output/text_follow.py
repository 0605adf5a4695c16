"""Follows a terminal's text: first the retained text, then live text, without repetition.

A `TextStream` converts output to text incrementally: complete lines, and the current line. The
result equals the text that the daemon retains for the same bytes, except that lines are repeated
when the program draws them again.

The daemon retains text for longer than bytes, unless the limit of the text is small (the agent's
`outputByteLimit`, or the setting `output_bytes`). So the first text is either the daemon's text or
converted from the daemon's bytes, whichever reaches back further. Later output is received as bytes
and converted here.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Final, NamedTuple

from acpterm.acp.user_api import OutputResponse
from acpterm.commands.blocking_client import BlockingClient
from acpterm.commands.output.read import TimedPart, read_output
from acpterm.terminal.text.controls import Controls
from acpterm.terminal.text.line import Line
from acpterm.terminal.text.redraw import ROW_MARKS
from acpterm.terminal.text.slices import SLICE_MIN_BYTES, resync, text_of
from acpterm.terminal.text.utf8 import Utf8

UNKNOWN: Final = -1
"""The value of `NewLines.lost` if the number of missing bytes is unknown."""


class TextStream:
    """Converts output, fed in pieces of any size, to text."""

    def __init__(self) -> None:
        self._utf8 = Utf8()
        self._controls = Controls()
        self._line = Line()

    @property
    def line(self) -> str:
        return self._line.text()

    def feed(self, data: bytes) -> str:
        """Return the lines that the next bytes complete."""
        return self._run(self._utf8.feed(data))

    def finish(self) -> str:
        """Return the lines that the end completes; an incomplete character becomes U+FFFD."""
        return self._run(self._utf8.finish())

    def _run(self, characters: bytes) -> str:
        program = self._program(characters)
        return self._line.run(program) if program else ""

    def _program(self, characters: bytes) -> str:
        # Lines that were returned cannot change, so lines that are drawn again are returned again.
        return self._controls.feed(characters).translate(None, ROW_MARKS).decode()


def continue_text(text: str, stream: bytes) -> tuple[str, TextStream]:
    """Return the complete lines of `text`, and a stream that continues it after its bytes."""
    # The state of a conversion is known only at the beginning of a line, so the current line is
    # converted again.
    converter = TextStream()
    over = converter.feed(stream[stream.rfind(b"\n") + 1 :])
    converted = over + converter.line
    head = text[: len(text) - len(converted)]
    if text.endswith(converted) and (not head or head.endswith("\n")):
        return head + over, converter
    # The bytes of the current line's beginning are not in `stream`. Convert the line's text
    # instead, and then the bytes at the end that are not in the text yet.
    converter = TextStream()
    end = text.rfind("\n") + 1
    over = converter.feed(text[end:].encode())
    tail = stream[-SLICE_MIN_BYTES:]
    return text[:end] + over + converter.feed(tail[text_of(tail, final=False)[1] :]), converter


class NewLines(NamedTuple):
    """A change of a terminal's text: newly completed lines, and the current, incomplete line."""

    over: str
    """Newly completed lines. The first one completes the `line` of the previous change."""
    line: str
    lost: int = 0
    """Bytes missing before `over`, or `UNKNOWN`. If not 0, `over` begins with a new line."""


class _TextFollower:
    """Yields the daemon's text, or that of `parts` if they reach back further, and what follows."""

    def __init__(
        self,
        parts: Iterator[TimedPart],
        output: OutputResponse | None,
        stream: Callable[[], TextStream],
    ) -> None:
        self._parts = parts
        self._output = output
        self._new_stream = stream
        self._stream = stream()
        # A part that follows the retained text after a gap.
        self._held: TimedPart | None = None

    def run(self) -> Iterator[NewLines]:
        if self._output is not None:
            yield self._begin(self._output)
        if self._held is not None:
            yield self._convert(self._held)
        for part in self._parts:
            yield self._convert(part)
        yield NewLines(self._stream.finish(), self._stream.line)

    def _begin(self, output: OutputResponse) -> NewLines:
        pieces: list[bytes] = []
        start = position = 0
        while position < output.position and (part := next(self._parts, None)):
            begin = part.position - len(part.data)
            if begin > output.position:
                # The bytes between the retained text and this part are lost.
                self._held = part._replace(lost=begin - output.position)
                break
            if part.lost or not pieces:
                pieces, start = [], begin
            pieces.append(part.data)
            position = part.position
        known = b"".join(pieces)
        until = max(0, output.position - start)
        if output.truncated:
            skipped = resync(known) if start else 0
            longer = TextStream()
            over = longer.feed(known[skipped:until])
            if len(over) + len(longer.line) > len(output.text):
                self._stream = longer
                over += longer.feed(known[max(until, skipped) :])
                return NewLines(over, longer.line, start + skipped)
        # After the exit the text is final: an incomplete character in it is U+FFFD already.
        seen = known[:until] if output.exit_status is None else b""
        over, self._stream = continue_text(output.text, seen)
        over += self._stream.feed(known[until:])
        return NewLines(over, self._stream.line, UNKNOWN if output.truncated else 0)

    def _convert(self, part: TimedPart) -> NewLines:
        data, lost = part.data, part.lost
        if lost:
            self._stream = self._new_stream()
            skipped = resync(data)
            data, lost = data[skipped:], lost + skipped
        over = self._stream.feed(data)
        return NewLines(over, self._stream.line, lost)


def follow_text(
    client: BlockingClient,
    terminal: str,
    *,
    since: int | None = None,
    since_time: int | None = None,
    stay: bool = True,
    stream: Callable[[], TextStream] = TextStream,
) -> Generator[NewLines, None, None]:
    """Yield text, all or from a position or time on; if `stay`, live text too, to the end."""
    output = None
    if since is None and since_time is None:
        output = client.terminal_request("output", terminal, OutputResponse)
    parts = read_output(client, terminal, since=since, since_time=since_time, stay=stay)
    with closing(parts):
        yield from _TextFollower(parts, output, stream).run()
