"""Text of others, made safe to print: an agent or a program is not to steer the person's terminal.

Control sequences can rename a window, write to the clipboard or hide what is there. What is left
here is text, lines and tabs, and of a program's lines, if wished, its colours (SGR in ECMA-48).
"""

import re
from typing import Final

# A sequence: CSI, a string that is ended or not (OSC, DCS, APC, PM, SOS), or another escape.
_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]*m")
# All other control characters, those that change the direction of text, and half characters.
_STEERING: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
)
_CONTROL: Final = re.compile(f"[{_STEERING}]")
# And what is not seen, or is seen as an end of line.
_UNSEEN: Final = re.compile(f"[\\t\\n\\u200b\\u2060-\\u2065\\ufeff{_STEERING}]")


def plain(text: str) -> str:
    """Give text without control characters, but for tabs and the ends of lines."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n")))


def visible(text: str) -> str:
    """Give text with each control character shown as an escape: nothing in it is hidden."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def in_a_line(text: str, most: int = 200) -> str:
    """Give text as one line of at most `most` characters, in which nothing is hidden."""
    line = visible(text.strip())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def coloured(line: str) -> str:
    """Give a line that a program printed with its colours, which end with it, and nothing else.

    Of what it wrote over with carriage returns the last is left, as on a terminal.
    """
    line = line.rstrip("\r")
    line = line[line.rfind("\r") + 1 :]
    kept = _SEQUENCE.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else "", line)
    parts = _COLOUR.split(kept)
    if len(parts) == 1:
        return _CONTROL.sub("", kept)
    colours = _COLOUR.findall(kept)
    text = _CONTROL.sub("", parts[0])
    for colour, part in zip(colours, parts[1:], strict=True):
        text += colour + _CONTROL.sub("", part)
    return f"{text}\x1b[0m"
