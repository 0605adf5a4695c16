"""Incremental UTF-8 decoding: turns any bytes into valid UTF-8 that consists of whole characters.

States and rules:

- At most three bytes are held back: the beginning of a character that later bytes may complete.
- Bytes that can never become a character are replaced by U+FFFD, grouped as Python's "replace" does
  (Unicode 3.9, "substitution of maximal subparts"). One invalid byte becomes three bytes of text.
- When the stream ends, an incomplete character becomes one U+FFFD.

`boundary` returns where a piece of UTF-8 may begin, and `whole` where a piece may end, so that no
character is divided.
"""

from __future__ import annotations

from codecs import utf_8_decode

REPLACEMENT = "\ufffd".encode()


class Utf8:
    """Turns a stream of bytes into a stream of whole UTF-8 characters."""

    __slots__ = ("_incomplete",)

    def __init__(self) -> None:
        self._incomplete = b""

    @property
    def incomplete_bytes(self) -> int:
        return len(self._incomplete)

    def feed(self, data: bytes) -> bytes:
        """Process the next bytes; return all characters that are now complete, as UTF-8."""
        if self._incomplete:
            data = self._incomplete + data
            self._incomplete = b""
        if data.isascii():
            return data
        try:
            _, consumed = utf_8_decode(data, "strict", False)
        except UnicodeDecodeError:
            text, consumed = utf_8_decode(data, "replace", False)
            self._incomplete = data[consumed:]
            return text.encode()
        self._incomplete = data[consumed:]
        return data[:consumed]

    def finish(self) -> bytes:
        """End the stream: return U+FFFD if it ends within a character."""
        held, self._incomplete = self._incomplete, b""
        return REPLACEMENT if held else b""


def is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def boundary(data: bytes, index: int) -> int:
    """Return the index of the first character at or after `index`."""
    while index < len(data) and is_continuation(data[index]):
        index += 1
    return index


def whole(data: bytes) -> int:
    """Return the length of `data` without an incomplete character at its end."""
    return utf_8_decode(data, "replace", False)[1]
