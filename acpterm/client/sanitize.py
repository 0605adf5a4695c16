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
_C0: Final = r"\x00-\x08\x0b-\x1f"
_TURNING: Final = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL: Final = re.compile(f"[{_C0}{_TURNING}]")
# And what is not seen: Unicode's category Cf, and all that it calls Default_Ignorable, as are the
# fillers of Hangul, variation selectors and tags.
_UNSEEN: Final = (
    r"\xad\u034f\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
# What joins two emoji to one (ZWJ), and what has a character be a picture (U+FE0F), does not hide:
# it is seen that the picture is another one. So it stays where it does that: once behind an emoji,
# and a ZWJ before the next one. Alone, or several after each other, they could carry any message
# past the reader; so could tags, which are escaped in flags, too.
_EMOJI: Final = (
    r"[\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a-\u23fa\u24c2\u25aa-\u25fe"
    r"\u2600-\u27bf\u2934\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_STAYS: Final = (
    rf"(?<={_EMOJI})(?:\ufe0f(?:\u200d(?={_EMOJI}))?|\u200d(?={_EMOJI}))"
    r"|(?<=[#*0-9])\ufe0f(?=\u20e3)"
)
_HIDDEN: Final = re.compile(rf"(?P<stays>{_STAYS})|[\t\n{_C0}{_TURNING}{_UNSEEN}]")
# In scripts whose letters join (Arabic, Syriac, N'Ko, those of India, Mongolian), words are written
# with a single joiner or non-joiner between two letters.
_JOINING: Final = r"[\u0620-\u07fa\u08a0-\u08c9\u0900-\u0df4\u1820-\u1878]"
_HIDDEN_IN_TEXT: Final = re.compile(
    rf"(?P<stays>{_STAYS}|(?<={_JOINING})[\u200c\u200d](?={_JOINING}))"
    rf"|[{_C0}{_TURNING}{_UNSEEN}]"
)
_HIDDEN_IN_JSON: Final = re.compile(f"[{_TURNING}{_UNSEEN}]")


def strip_controls(text: str) -> str:
    """Give text without control characters, but for tabs and the ends of lines."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n")))


def escape_invisible(text: str) -> str:
    """Give text with what is not seen, and what steers, shown as escapes: nothing in it is hidden.

    A tab and the end of a line are escapes, too.
    """
    return _HIDDEN.sub(_visible, text)


def escape_invisible_text(text: str) -> str:
    """Return a text of lines with what is not seen, and what steers, shown as escapes.

    Tabs and the ends of lines stay, and so do joiners where letters of a script join.
    """
    return text if text.isascii() and text.isprintable() else _HIDDEN_IN_TEXT.sub(_visible, text)


def _visible(found: re.Match[str]) -> str:
    return found["stays"] or found[0].encode("unicode_escape").decode()


def escape_json(text: str) -> str:
    """Give JSON that has the same value, with what `visible` escapes escaped in JSON's way."""
    return _HIDDEN_IN_JSON.sub(_escaped_in_json, text)


def _escaped_in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def one_line(text: str, most: int = 200) -> str:
    """Give text as one line of at most `most` characters, in which nothing is hidden."""
    line = escape_invisible(text.strip())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def keep_sgr(line: str) -> str:
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
