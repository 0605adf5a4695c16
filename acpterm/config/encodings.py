"""The encodings that the output of a terminal's programs may have."""

from typing import Literal, TypeAlias

Encoding: TypeAlias = Literal[
    "utf-8",
    "auto",
    "gb18030",
    "big5",
    "shift_jis",
    "euc-jp",
    "euc-kr",
    "latin-1",
    "windows-1251",
    "windows-1252",
    "koi8-r",
    "utf-16",
    "utf-16-be",
]
