"""Decode output that is not UTF-8, before it is written to the ring.

Imported only for such output, since the patterns take time and memory.

With `auto`, a line that is valid UTF-8 is never changed. All other lines are collected, up to
`_SAMPLE_BYTES`, until `detect` knows their encoding; until then, and without a result, they stay as
they are. One encoding is found per terminal.
"""

from __future__ import annotations

import codecs
import re

from acpterm.keeper.encodings import CODECS, ENCODINGS, FOUND

_SAMPLE_BYTES = 4096
# What no text has: output with these bytes is binary data.
_BINARY = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_TWO = rb"[\x81-\xfe][\x40-\x7e\x80-\xfe]"
_DOUBLE = rb"[\xa1-\xfe][\xa1-\xfe]"
# Of each encoding that `auto` tells apart: its characters beyond ASCII; those that make up nearly
# all of a text; and those that are frequent in any text, but not in texts of other encodings.
_TRAITS = {
    # Hanzi of the first level, ordered by pronunciation; those from C9 on are no hangul.
    "gb18030": (_TWO, rb"[\xa1-\xa3\xb0-\xd7][\xa1-\xfe]", rb"[\xc9-\xd7][\xa1-\xfe]"),
    "euc-kr": (_DOUBLE, rb"[\xa1-\xa3\xb0-\xc8][\xa1-\xfe]", rb"[\xb0-\xc8][\xa1-\xfe]"),
    "big5": (_TWO, rb"[\xa1-\xc6][\x40-\x7e\xa1-\xfe]", rb"[\xa4-\xc6][\x40-\x7e]"),
    # Kana are in every Japanese text.
    "euc-jp": (
        rb"\x8f?[\x8e\xa1-\xfe][\xa1-\xfe]",
        rb"[\xa1-\xa5\xb0-\xcf][\xa1-\xfe]",
        rb"[\xa4\xa5][\xa1-\xf6]",
    ),
    "shift_jis": (
        rb"[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]|[\xa1-\xdf]",
        rb"[\x81-\x83\x88-\x97][\x40-\x7e\x80-\xfc]",
        rb"\x82[\x9f-\xf1]|\x83[\x40-\x96]",
    ),
    # Small Cyrillic letters, several in a row.
    "koi8-r": (rb"[\x80-\xff]", rb"[\xc0-\xdf]", rb"[\xc0-\xdf]{3}"),
    "windows-1251": (rb"[\x80-\xff]", rb"[\xe0-\xff]", rb"[\xe0-\xff]{3}"),
    # Letters of western Europe, at most two in a row.
    "windows-1252": (
        rb"[\x80-\xff]",
        rb"(?<![\x80-\xff]{2})[\xc4\xc9\xd6\xdc\xdf-\xeb\xed-\xef\xf1-\xf6\xf8-\xfc](?![\x80-\xff]{2})",
        rb"[\xe0-\xfc]",
    ),
}
_COUNTED = {
    name: tuple(re.compile(part, re.DOTALL) for part in traits) for name, traits in _TRAITS.items()
}
_MIN_CHARACTERS = 12
_TYPICAL_MIN = 0.9
_MARKS_MIN = 0.1


class Decoder:
    """Converts the output of one terminal; `word` is the `ENCODING` of its ring's header."""

    __slots__ = ("_decoder", "_held", "_is_other", "_name", "_requested", "_sample")

    def __init__(self, word: int) -> None:
        self._requested = word % FOUND
        self._name = ENCODINGS[word // FOUND or self._requested]
        self._decoder = _decoder(self._name)
        self._sample = self._held = b""
        # With `auto`: whether the line so far is not UTF-8.
        self._is_other = False

    @property
    def word(self) -> int:
        found = ENCODINGS.index(self._name)
        return self._requested + (0 if found == self._requested else FOUND * found)

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        """Return the next output as UTF-8. An incomplete character is held back."""
        if ENCODINGS[self._requested] == "auto":
            return self._feed_auto(data, final=final)
        if self._name.startswith("utf-16"):
            return self._feed_utf16(data, final=final)
        return self._decoder.decode(data, final).encode()

    def _feed_utf16(self, data: bytes, *, final: bool) -> bytes:
        # The PTY puts a CR before each LF, also before one that is half of a character.
        data = self._held + data
        self._held = data[-1:] if data.endswith(b"\r") and not final else b""
        data = data[: len(data) - len(self._held)].replace(b"\r\n", b"\n")
        text = self._decoder.decode(data, final).replace("\ufeff", "")
        return text.replace("\n", "\r\n").encode()

    def _feed_auto(self, data: bytes, *, final: bool) -> bytes:
        if data.isascii() and not self._held and not self._is_other:
            return data
        data, self._held = self._held + data, b""
        lines = _lines(data)
        if self._name == "auto":
            self._sample += b"".join(line for line in lines if not _is_utf8(line))
            if found := detect(self._sample[:_SAMPLE_BYTES]):
                self._name, self._decoder = found, _decoder(found)
            elif len(self._sample) >= _SAMPLE_BYTES:
                self._name = "utf-8"
        return b"".join([self._line(line, final=final) for line in lines])

    def _line(self, line: bytes, *, final: bool) -> bytes:
        ended = line.endswith(b"\n")
        if not self._is_other and _is_utf8(line):
            if not ended and not final:
                line, self._held = _whole(line)
            return line
        if self._name in {"auto", "utf-8"}:
            return line
        self._is_other = not ended
        return self._decoder.decode(line, ended or final).encode()


def _lines(data: bytes) -> list[bytes]:
    *lines, last = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _whole(line: bytes) -> tuple[bytes, bytes]:
    used = codecs.utf_8_decode(line, "strict", False)[1]
    return line[:used], line[used:]


def _is_utf8(line: bytes) -> bool:
    """Return whether `line` is UTF-8; it may end within a character."""
    try:
        codecs.utf_8_decode(line, "strict", False)
    except UnicodeDecodeError:
        return False
    return True


def _decoder(name: str) -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder(CODECS[name])("replace")


def detect(sample: bytes) -> str | None:
    """Return the encoding of lines that are not UTF-8; None if it is not clear."""
    if _BINARY.search(sample):
        return None
    found = [name for name in _COUNTED if _fits(sample, name)]
    return found[0] if len(found) == 1 else None


def _fits(sample: bytes, name: str) -> bool:
    every, typical, mark = _COUNTED[name]
    count = typicals = marks = at = 0
    while at < len(sample):
        if sample[at] < 0x80:
            at += 1
            continue
        char = every.match(sample, at)
        if char is None:
            # Only the last character may be incomplete.
            if len(sample) - at > 1:
                return False
            break
        count += 1
        typicals += typical.match(sample, at) is not None
        marks += mark.match(sample, at) is not None
        at = char.end()
    return (
        count >= _MIN_CHARACTERS
        and typicals >= _TYPICAL_MIN * count
        and marks >= _MARKS_MIN * count
    )
