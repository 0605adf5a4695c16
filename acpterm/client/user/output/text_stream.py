"""The text of a stream, as it comes: the lines that are over, and the one that is not.

It is the same text that the daemon keeps, for whoever follows the bytes.
"""

from acpterm.terminal.text.controls import Controls
from acpterm.terminal.text.line import Line
from acpterm.terminal.text.slices import SLICE_MIN_BYTES, text_of
from acpterm.terminal.text.utf8 import Utf8


class TextStream:
    """Makes text of bytes, wherever they are cut."""

    def __init__(self) -> None:
        self._utf8 = Utf8()
        self._controls = Controls()
        self._line = Line()

    @property
    def line(self) -> str:
        """What the current line shows by now."""
        return self._line.text()

    def feed(self, data: bytes) -> str:
        """Take the next bytes: the lines that are over with them."""
        return self._run(self._utf8.feed(data))

    def finish(self) -> str:
        """Take the end: a character still incomplete becomes U+FFFD."""
        return self._run(self._utf8.finish())

    def _run(self, characters: bytes) -> str:
        program = self._controls.feed(characters)
        return self._line.run(program.decode()) if program else ""


def go_on(text: str, stream: bytes) -> tuple[str, TextStream]:
    """Give what of `text` is over, and what makes text of the bytes that come next.

    `stream` are bytes that `text` came from, up to its end: all of them, or the last ones.
    """
    # A line is the only thing sure to begin afresh, so the current one is made again.
    made = TextStream()
    over = made.feed(stream[stream.rfind(b"\n") + 1 :])
    shown = over + made.line
    head = text[: len(text) - len(shown)]
    if text.endswith(shown) and (not head or head.endswith("\n")):
        return head + over, made
    # Its beginning is gone. What it shows is known, and what of it is no text yet.
    made = TextStream()
    end = text.rfind("\n") + 1
    over = made.feed(text[end:].encode())
    tail = stream[-SLICE_MIN_BYTES:]
    return text[:end] + over + made.feed(tail[text_of(tail, final=False)[1] :]), made
