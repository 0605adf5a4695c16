"""A terminal's text, followed: first all that is kept, then what comes, nothing twice.

The daemon keeps text longer than bytes, but bytes longer than a text with a small limit: the text
begins with the longer of the two. What comes later is converted from bytes here.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Final, NamedTuple

from acpterm.acp.user_api import OutputResponse
from acpterm.client.user.blocking_client import BlockingClient
from acpterm.client.user.output.read import TimedPart, read_output
from acpterm.client.user.output.text_stream import TextStream, go_on
from acpterm.terminal.text.slices import resync

UNKNOWN: Final = -1


class NewLines(NamedTuple):
    """What is new in a text."""

    over: str
    """The lines that are complete now; the first includes what was reported of it before."""
    line: str
    """The line that is not complete."""
    lost: int = 0
    """Bytes that are missing before it, or `UNKNOWN`; then no line continues."""


class _TextFollower:
    """Makes text of output. `output` is the text that the daemon has kept, to begin with."""

    def __init__(self, parts: Iterator[TimedPart], output: OutputResponse | None) -> None:
        self._parts = parts
        self._output = output
        self._stream = TextStream()
        # A part that comes behind the beginning, with a gap between.
        self._held: TimedPart | None = None

    def run(self) -> Iterator[NewLines]:
        """Yield what is new, until the output ends."""
        if self._output is not None:
            yield self._begin(self._output)
        if self._held is not None:
            yield self._news(self._held)
        for part in self._parts:
            yield self._news(part)
        yield NewLines(self._stream.finish(), self._stream.line)

    def _begin(self, output: OutputResponse) -> NewLines:
        """Collect the bytes up to the end of the text, and go on from there."""
        pieces: list[bytes] = []
        start = position = 0
        while position < output.position and (part := next(self._parts, None)):
            begin = part.position - len(part.data)
            if begin > output.position:
                # What was between them is gone.
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
        # Of one that has ended the text is whole: a character that is not will not be.
        seen = known[:until] if output.exit_status is None else b""
        over, self._stream = go_on(output.text, seen)
        over += self._stream.feed(known[until:])
        return NewLines(over, self._stream.line, UNKNOWN if output.truncated else 0)

    def _news(self, part: TimedPart) -> NewLines:
        data, lost = part.data, part.lost
        if lost:
            self._stream = TextStream()
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
) -> Generator[NewLines, None, None]:
    """Yield a terminal's text as it comes: all of it, or from `since` on.

    `since_time`: from what came then or later, in milliseconds since 1970. Without `stay`, it ends
    after what there is now. Closing it ends the request. Raises `RpcError`, `DaemonError`.
    """
    output = None
    if since is None and since_time is None:
        output = client.terminal_request("output", terminal, OutputResponse)
    parts = read_output(client, terminal, since=since, since_time=since_time, stay=stay)
    with closing(parts):
        yield from _TextFollower(parts, output).run()
