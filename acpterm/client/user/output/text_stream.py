"""Incremental conversion of output to text: complete lines, and the current line.

The result equals the text that the daemon keeps of the same bytes.
"""

from acpterm.terminal.text.controls import Controls
from acpterm.terminal.text.line import Line
from acpterm.terminal.text.slices import SLICE_MIN_BYTES, text_of
from acpterm.terminal.text.utf8 import Utf8


class TextStream:
    """Converts output to text. The output may be split anywhere."""

    def __init__(self) -> None:
        self._utf8 = Utf8()
        self._controls = Controls()
        self._line = Line()

    @property
    def line(self) -> str:
        """The present content of the current line."""
        return self._line.text()

    def feed(self, data: bytes) -> str:
        """Process the next bytes; return the lines that they complete."""
        return self._run(self._utf8.feed(data))

    def finish(self) -> str:
        """Process the end of the output; an incomplete character becomes U+FFFD."""
        return self._run(self._utf8.finish())

    def _run(self, characters: bytes) -> str:
        program = self._controls.feed(characters)
        return self._line.run(program.decode()) if program else ""


def continue_text(text: str, stream: bytes) -> tuple[str, TextStream]:
    """Return the complete lines of `text`, and a `TextStream` for the bytes that follow it.

    `stream` has the bytes that `text` was converted from, up to its end: all, or the last of them.
    """
    # The state of a conversion is known only at the beginning of a line, so the current line is
    # converted again.
    converter = TextStream()
    over = converter.feed(stream[stream.rfind(b"\n") + 1 :])
    converted = over + converter.line
    head = text[: len(text) - len(converted)]
    if text.endswith(converted) and (not head or head.endswith("\n")):
        return head + over, converter
    # The bytes of the line's beginning are gone. Start from its text, and from the bytes at the end
    # that are not text yet.
    converter = TextStream()
    end = text.rfind("\n") + 1
    over = converter.feed(text[end:].encode())
    tail = stream[-SLICE_MIN_BYTES:]
    return text[:end] + over + converter.feed(tail[text_of(tail, final=False)[1] :]), converter
