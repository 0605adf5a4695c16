"""Makes untrusted text safe to print: agents and programs must not control the user's terminal.

Control sequences can set titles, write to the clipboard or hide text. `strip_controls` removes
control characters and sequences. `keep_sgr` removes all of them except colours (SGR in ECMA-48).
The `escape_…` functions and `one_line` replace control characters and invisible ones by escapes.

The patterns are strings, which the `re` module compiles and caches at their first use. Most text is
plain ASCII and needs no pattern, and compiling all of them takes longer than a short command runs.
"""

import re
from typing import Final

# CSI; a control string, terminated or not (OSC, DCS, APC, PM, SOS); or another escape sequence.
_SEQUENCE: Final = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_COLOUR: Final = r"\x1b\[[0-9;:]*m"
# All other control characters, those that change the direction of text, and lone surrogates.
_C0: Final = r"\x00-\x08\x0b-\x1f"
_DIRECTION: Final = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL: Final = f"[{_C0}{_DIRECTION}]"
# Invisible characters: Unicode's category Cf and its Default_Ignorable property, which includes
# Hangul fillers, variation selectors and tags.
_INVISIBLE: Final = (
    r"\xad\u034f\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
# The zero-width joiner (ZWJ) between two emoji and the variation selector U+FE0F have a visible
# effect on the emoji. So they are kept in these positions: each once after an emoji, and the ZWJ
# only before another emoji. Alone or repeated they could carry a hidden message. Tag characters
# could too, so they are escaped even in flags.
_EMOJI: Final = (
    r"[\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a-\u23fa\u24c2\u25aa-\u25fe"
    r"\u2600-\u27bf\u2934\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_KEPT: Final = (
    rf"(?<={_EMOJI})(?:\ufe0f(?:\u200d(?={_EMOJI}))?|\u200d(?={_EMOJI}))"
    r"|(?<=[#*0-9])\ufe0f(?=\u20e3)"
)
_HIDDEN: Final = rf"(?P<kept>{_KEPT})|[\t\n{_C0}{_DIRECTION}{_INVISIBLE}]"
# Scripts with joining letters (Arabic, Syriac, N'Ko, the scripts of India, Mongolian) need a single
# joiner or non-joiner between two letters of some words.
_JOINING: Final = r"[\u0620-\u07fa\u08a0-\u08c9\u0900-\u0df4\u1820-\u1878]"
_HIDDEN_IN_TEXT: Final = (
    rf"(?P<kept>{_KEPT}|(?<={_JOINING})[\u200c\u200d](?={_JOINING}))"
    rf"|[{_C0}{_DIRECTION}{_INVISIBLE}]"
)
_HIDDEN_IN_JSON: Final = f"[{_DIRECTION}{_INVISIBLE}]"


def strip_controls(text: str) -> str:
    """Return text without control characters and sequences, but tabs and line feeds."""
    return re.sub(_CONTROL, "", re.sub(_SEQUENCE, "", text.replace("\r\n", "\n")))


def escape_invisible(text: str) -> str:
    """Replace invisible and control characters by escapes, also tabs and line feeds."""
    return text if _is_plain(text) else re.sub(_HIDDEN, _escape, text)


def escape_invisible_text(text: str) -> str:
    """Replace invisible and control characters by escapes, in text of several lines."""
    return text if _is_plain(text) else re.sub(_HIDDEN_IN_TEXT, _escape, text)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _escape(match: re.Match[str]) -> str:
    return match["kept"] or match[0].encode("unicode_escape").decode()


def escape_json(text: str) -> str:
    """Replace invisible and control characters in the JSON text `text` by JSON escapes."""
    if text.isascii() and "\x7f" not in text:
        return text
    return re.sub(_HIDDEN_IN_JSON, _escape_for_json, text)


def _escape_for_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def one_line(text: str, max_chars: int = 200) -> str:
    """Return text as one line with escapes, cut to `max_chars` characters."""
    line = escape_invisible(text.strip())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def shortened(text: str, max_chars: int) -> str:
    """Return text as one line with escapes, of which the middle is left out if it is too long."""
    line = escape_invisible(text.strip())
    if len(line) <= max_chars:
        return line
    # The dangerous part of a long command is often its end.
    end = max_chars // 2
    return f"{line[: max_chars - end - 3]} … {line[-end:]}"


def keep_sgr(line: str) -> str:
    """Return a line of program output with its colours only, after its last carriage return."""
    line = line.rstrip("\r")
    line = line[line.rfind("\r") + 1 :]
    kept = re.sub(
        _SEQUENCE, lambda match: match[0] if re.fullmatch(_COLOUR, match[0]) else "", line
    )
    parts = re.split(_COLOUR, kept)
    if len(parts) == 1:
        return re.sub(_CONTROL, "", kept)
    colours = re.findall(_COLOUR, kept)
    text = re.sub(_CONTROL, "", parts[0])
    for colour, part in zip(colours, parts[1:], strict=True):
        text += colour + re.sub(_CONTROL, "", part)
    return f"{text}\x1b[0m"
