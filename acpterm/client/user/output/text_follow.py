"""A terminal's text, followed: first all that is kept, then what comes, nothing twice.

The text that the daemon keeps outlives the bytes, and the bytes outlive a text with a small limit:
the longer of the two is what it begins with. Then bytes are made text here.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from acpterm.acp.user_api import OutputResponse
from acpterm.client.user.client import UserClient
from acpterm.client.user.output.follow import OutputStream, Part, follow_output
from acpterm.client.user.output.text_stream import TextStream, go_on
from acpterm.terminal.text.slices import resync

UNKNOWN: Final = -1


class NewLines(NamedTuple):
    """What is new of a text."""

    over: str
    """The lines that are over now, with what was shown of the first one before."""
    line: str
    """What the line shows that is not over."""
    lost: int = 0
    """Bytes that are missing before it, or `UNKNOWN`; then no line goes on."""


class TextFollower:
    """The news of one text, to be gone through once. `output`: what there is at its beginning."""

    def __init__(self, parts: OutputStream, output: OutputResponse | None) -> None:
        self._parts = parts
        self._output = output
        self._stream = TextStream()
        # A part that comes behind the beginning, with a gap between.
        self._held: Part | None = None
        self._ended = False

    def __aiter__(self) -> "TextFollower":
        return self

    async def __anext__(self) -> NewLines:
        """Wait for news."""
        if self._ended:
            raise StopAsyncIteration
        if self._output is not None:
            output, self._output = self._output, None
            return await self._begin(output)
        if self._held is not None:
            part, self._held = self._held, None
            return self._news(part)
        async for part in self._parts:
            return self._news(part)
        self._ended = True
        return NewLines(self._stream.finish(), self._stream.line)

    async def _begin(self, output: OutputResponse) -> NewLines:
        """Collect the bytes up to the end of the text, and go on from there."""
        pieces: list[bytes] = []
        start = position = 0
        while position < output.position and (part := await anext(self._parts, None)):
            begin = part.position - len(part.data)
            if begin > output.position:
                # What lies between is gone.
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

    def _news(self, part: Part) -> NewLines:
        data, lost = part.data, part.lost
        if lost:
            self._stream = TextStream()
            skipped = resync(data)
            data, lost = data[skipped:], lost + skipped
        over = self._stream.feed(data)
        return NewLines(over, self._stream.line, lost)


@asynccontextmanager
async def follow_text(
    client: UserClient,
    terminal: str,
    *,
    since: int | None = None,
    since_time: int | None = None,
    stay: bool = True,
) -> AsyncIterator[TextFollower]:
    """Follow a terminal's text for as long as the block lasts: all of it, or from `since` on.

    `since_time`: from what came then or later, in milliseconds since 1970. Unless it is to `stay`,
    it ends with what there is now. Raises `RpcError`, in a group.
    """
    async with follow_output(
        client, terminal, since=since, since_time=since_time, stay=stay
    ) as parts:
        output = None
        if since is None and since_time is None:
            output = await client.terminal_request("output", terminal, OutputResponse)
        yield TextFollower(parts, output)
