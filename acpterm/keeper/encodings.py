"""Encodings of output and input besides UTF-8.

The keeper converts output (`programs.decoding`), so that a ring has UTF-8 only; the worker converts
input. A terminal's encoding is in its ring's header (`ring_file.ENCODING`): the number of the
encoding that was requested; for `auto`, plus `FOUND` times the number of the one that was found.
The number is an index in `ENCODINGS`.
"""

from __future__ import annotations

#: The encodings and Python's codecs for them. Only append: running terminals have the numbers.
CODECS = {
    "utf-8": "utf-8",
    "auto": "utf-8",
    "gb18030": "gb18030",
    "big5": "cp950",
    "shift_jis": "cp932",
    "euc-jp": "euc_jp",
    "euc-kr": "cp949",
    "latin-1": "latin-1",
    "windows-1251": "cp1251",
    "windows-1252": "cp1252",
    "koi8-r": "koi8-r",
    "utf-16": "utf-16-le",
    "utf-16-be": "utf-16-be",
}
ENCODINGS = tuple(CODECS)
#: One byte of output becomes at most this many bytes of UTF-8.
GROWTH = 3

FOUND = 256


def encode_input(data: bytes, word: int) -> bytes:
    """Return input in a terminal's encoding. What is not UTF-8 stays as it is."""
    name = ENCODINGS[word // FOUND or word % FOUND]
    if CODECS[name] == "utf-8":
        return data
    try:
        return data.decode().encode(CODECS[name], "replace")
    except UnicodeDecodeError:
        return data
