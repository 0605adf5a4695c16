"""The filter of output that is passed through to an attached window: an allow-list.

The emulator replies to a program's queries. So the window's own terminal (the terminal program in
which the user has attached, such as xterm) must not get them. It would reply as well, and its
replies would be typed into the program, even from a read-only window, or into the user's shell
after the window has detached. Nor must a program print, copy files, run commands of the terminal
program or change what is outside of its window. So only sequences *pass* that are known to draw, to
move, or to set what an attached window restores; all others are removed.

These pass:

- SGR, movement, erasing, scrolling, tabs, character sets, modes except those that make a terminal
  report events (`REPORTING_MODES`), cursor shapes, keyboard protocols; `_PASSED_CSI`, `_ESCAPES`;
- OSC: titles, the directory, links, progress (9;4), colours and pointer shapes unless they are
  queried, kitty's text size, and marks of prompts (133); the clipboard (52) if it is allowed, and
  only to write;
- DCS: sixel images, and the marks of synchronized updates.

Everything else is removed, such as ENQ and all queries, window operations and printing, other OSC
(notifications, iTerm2's and kitty's protocols, fonts, logs), other DCS (settings, keys, tmux), and
APC, PM and SOS. So are sequences that are cut short by another sequence: if only the other sequence
were removed, the bytes after it could complete the first one.

C1 controls in UTF-8 (`C2 9B` for CSI, …) are treated as their escape sequences. An incomplete
sequence at the end of the data is held back until the filter can decide whether it passes.
"""

from __future__ import annotations

import re
from typing import Final

INCOMPLETE_MAX: Final = 4096  # bytes held back; a longer sequence is dropped
# Private modes that make a terminal report by itself: colour scheme, visibility, size, paste. Mode
# 38 switches a terminal to Tektronix mode, which has queries of its own.
REPORTING_MODES: Final = frozenset({38, 2031, 2033, 2048, 5522})

# Controls that are executed within a sequence: all but CAN, SUB and ESC.
_CONTROL: Final = rb"[\x00-\x17\x19\x1c-\x1f\x7f]"
_BODY: Final = rb"[\x00-\x17\x19\x1c-\x3f\x7f]*"
_CUT: Final = rb"(?=[\x18\x1a\x1b\x80-\xff])"
# Matches every sequence that is not evidently harmless. Large outputs mostly consist of text, SGR
# and cursor movements, which this expression skips quickly.
_SUSPECT_ESCAPE: Final = re.compile(
    rb"\x1b(?!\[(?:[0-9;:]*[@-MPSTXZ`abdefglmrs]|\?[0-9;]*[lJK])|[78=>DEHMc]|[()*+][0-9A-Z])"
)
_SUSPECT: Final = re.compile(rb"\x05|\xc2(?:[\x80-\x9f]|\Z)|" + _SUSPECT_ESCAPE.pattern)
_TOKEN: Final = re.compile(
    rb"(?P<enquiry>\x05+)|"
    rb"(?P<string>\x1b%(control)b*(?P<kind>[\]P_X^])|\xc2(?P<c1>[\x90\x98\x9d\x9e\x9f]))|"
    rb"(?:\x1b%(control)b*\[|\xc2\x9b)(?P<body>%(body)b)(?:(?P<final>[@-~])|(?P<cut>%(cut)b))|"
    rb"\x1b(?P<escape>%(control)b*)(?:(?P<end>[0-OQ-WYZ\\`-~])|%(cut)b)|"
    rb"\x1b(?P<longer>%(control)b*[ -/][\x00-\x17\x19\x1c-\x2f\x7f]*)(?:(?P<last>[0-~])|%(cut)b)|"
    rb"\xc2(?P<other>[\x80-\x8f\x91-\x97\x99\x9a\x9c])"
    % {b"control": _CONTROL, b"body": _BODY, b"cut": _CUT}
)
_CONTROLS: Final = bytes(range(0x20)) + b"\x7f"
_ENQUIRY: Final = b"\x05"
_KINDS: Final = {b"\x90": b"P", b"\x98": b"X", b"\x9d": b"]", b"\x9e": b"^", b"\x9f": b"_"}
_OSC_END: Final = re.compile(rb"\a|\x1b\\|\xc2\x9c|[\x18\x1a\x1b]|\xc2\Z")
_STRING_END: Final = re.compile(rb"\x1b\\|\xc2\x9c|[\x18\x1a\x1b]|\xc2\Z")

_CSI: Final = re.compile(rb"([<-?]?)([0-9:;]*)([ -/]*)")
# The CSI sequences that pass: private marker, intermediates and final byte.
_PASSED_CSI: Final = frozenset(
    {
        *(bytes([final]) for final in b"@ABCDEFGHIJKLMPSTXZ`abdefghlmqrsu"),
        *(
            b"?h",
            b"?l",
            b"?r",
            b"?s",
            b"?J",
            b"?K",
            b"?W",
            b"!p",
            b" q",
            b'"q',
            b"*x",
            b" @",
            b" A",
        ),
        *(
            b">m",
            b">n",
            b">u",
            b"<u",
            b"=u",
            b"$r",
            b"$t",
            b"$v",
            b"$x",
            b"$z",
            b"${",
            b"'}",
            b"'~",
        ),
        *(b"#p", b"#q", b"#{", b"#}"),
    }
)
# XTWINOPS: the stack of titles.
_PASSED_WINDOW_OPERATIONS: Final = frozenset({22, 23})
# The final bytes of the escape sequences that pass, by their intermediates.
_ESCAPES: Final = {
    b"": b"6789=>cDEHMNOn|o}~\\",
    **dict.fromkeys((b"(", b")", b"*", b"+", b"-", b".", b"/"), bytes(range(0x30, 0x7F))),
    b"#": b"34568",
}
_C1: Final = b"\x84\x85\x88\x8d\x8e\x8f\x9c"

_TEXTS: Final = frozenset({0, 1, 2, 7, 8, 66, 133})
_COLOURS: Final = frozenset({4, 5, *range(10, 20), 22, 104, 105, *range(110, 120)})
_PROGRESS: Final = 9
_CLIPBOARD: Final = 52
_DCS: Final = re.compile(rb"([<-?]?)[0-9;:]*([ -/]*)([@-~])")


class QueryFilter:
    """Removes from the output of one program what a window must not get."""

    __slots__ = ("_clipboard", "_dropping", "_held")

    def __init__(self, *, clipboard: bool = False) -> None:
        self._clipboard = clipboard
        self._held = b""
        # The pattern of the end of the string that is being dropped; None if none is.
        self._dropping: re.Pattern[bytes] | None = None

    @property
    def held(self) -> int:
        """The number of bytes held back."""
        return len(self._held)

    def feed(self, data: bytes) -> bytes:
        """Filter the next output; an incomplete sequence at its end may be held back."""
        if self._held:
            data, self._held = self._held + data, b""
        at = 0
        if self._dropping is not None:
            at = self._drop(data, 0, self._dropping)
        suspect = _SUSPECT if b"\xc2" in data or _ENQUIRY in data else _SUSPECT_ESCAPE
        found = suspect.search(data, at)
        if found is None:
            return data[at:] if at else data
        parts: list[bytes] = []
        while found is not None:
            start = found.start()
            parts.append(data[at:start])
            token = _TOKEN.match(data, start)
            if token is None:
                # The sequence is not complete yet.
                if len(data) - start <= INCOMPLETE_MAX:
                    self._held = data[start:]
                at = len(data)
                break
            at = self._string(data, token, parts) if token["string"] else self._pass(token, parts)
            found = suspect.search(data, at)
        parts.append(data[at:])
        return b"".join(parts)

    def _pass(self, token: re.Match[bytes], parts: list[bytes]) -> int:
        """Filter a sequence that is no control string; return the index just past it."""
        whole = token[0]
        if token["final"] is not None:
            parts.append(_csi(whole, token["body"], token["final"]))
        elif token["cut"] is not None:
            parts.append(_executed(token["body"]))
        elif token["escape"] is not None or token["longer"] is not None:
            between = token["longer"] if token["escape"] is None else token["escape"]
            final = token["end"] or token["last"]
            finals = _ESCAPES.get(between.translate(None, _CONTROLS), b"")
            passes = final is not None and final in finals
            parts.append(whole.replace(_ENQUIRY, b"") if passes else _executed(between))
        elif token["other"] is not None and token["other"] in _C1:
            parts.append(whole)
        return token.end()

    def _string(self, data: bytes, token: re.Match[bytes], parts: list[bytes]) -> int:
        """Filter the control string that `token` begins; return where the caller continues."""
        kind = token["kind"] or _KINDS[token["c1"]]
        begin = token.end()
        ends = _OSC_END if kind == b"]" else _STRING_END
        end = ends.search(data, begin)
        if end is not None and end[0] in (b"\xc2", b"\x1b") and end.end() == len(data):
            # The terminator may be incomplete.
            end = None
        stop = len(data) if end is None else end.start()
        is_whole = end is not None and end[0] in (b"\a", b"\x1b\\", b"\xc2\x9c")
        content = data[begin : min(stop, begin + INCOMPLETE_MAX)].translate(None, _CONTROLS)
        passes = self._decide(kind, content, is_whole=is_whole)
        if passes:
            # The caller may filter the content as output: it contains no queries.
            parts.append(token[0].replace(_ENQUIRY, b""))
            return begin
        if passes is None and end is None and len(data) - token.start() <= INCOMPLETE_MAX:
            self._held = data[token.start() :]
            return len(data)
        return self._drop(data, begin, ends)

    def _drop(self, data: bytes, at: int, ends: re.Pattern[bytes]) -> int:
        """Drop the rest of a control string, from index `at` on; `feed` continues that."""
        self._dropping = None
        end = ends.search(data, at)
        if end is None or (end[0] in (b"\xc2", b"\x1b") and end.end() == len(data)):
            self._dropping = ends
            self._held = end[0] if end is not None else b""
            return len(data)
        # If another sequence cuts the string short, continue at that sequence.
        return end.end() if len(end[0]) > 1 or end[0] == b"\a" else end.start()

    def _decide(self, kind: bytes, content: bytes, *, is_whole: bool) -> bool | None:
        """Return whether a control string passes; None if that depends on bytes to come."""
        # `content` is its first part, without control characters.
        if kind == b"]":
            return self._decide_osc(content, is_whole=is_whole)
        if kind == b"P":
            header = _DCS.match(content)
            if header is None:
                return False if is_whole else None
            return header.groups() in ((b"", b"", b"q"), (b"=", b"", b"s"))
        return False

    def _decide_osc(self, content: bytes, *, is_whole: bool) -> bool | None:
        digits, semicolon, rest = content.partition(b";")
        if not digits.isdigit():
            # The palette sequences of the Linux console have no terminator.
            return digits[:1] in (b"P", b"R") if digits or is_whole else None
        number = _number(digits)
        if not semicolon and not is_whole:
            return None
        if number == _CLIPBOARD:
            return self._clipboard and _decide_clipboard(rest, is_whole=is_whole)
        if number == _PROGRESS:
            return rest[:1] == b"4" and (rest[1:2] in b";") if len(rest) > 1 or is_whole else None
        if number in _COLOURS:
            is_query = any(item.strip().startswith(b"?") for item in rest.split(b";"))
            return not is_query if is_whole else None
        return number in _TEXTS


def _decide_clipboard(rest: bytes, *, is_whole: bool) -> bool | None:
    _, semicolon, written = rest.partition(b";")
    if written:
        return not written.startswith(b"?")
    return bool(semicolon) if is_whole else None


def _number(digits: bytes) -> int:
    # Terminals ignore zeros in front, however many. Python would refuse thousands of digits.
    return int(digits.lstrip(b"0")[:9] or b"0")


def _executed(body: bytes) -> bytes:
    """Return the control characters inside a removed sequence."""
    # Terminals execute controls even within a sequence. ENQ is a query.
    return bytes(byte for byte in body if byte in _CONTROLS and byte != _ENQUIRY[0])


def _csi(whole: bytes, body: bytes, final: bytes) -> bytes:
    """Filter a control sequence: removes `REPORTING_MODES`, or all but control characters."""
    known = _CSI.fullmatch(body.translate(None, _CONTROLS))
    if known is None:
        # The private marker is misplaced. Some terminals accept that, but no program needs it.
        return _executed(body)
    private, parameters, between = known.groups()
    kind = private + between + final
    numbers = [_number(item) if item.isdigit() else 0 for item in parameters.split(b";")]
    passed = numbers[0] in _PASSED_WINDOW_OPERATIONS if kind == b"t" else kind in _PASSED_CSI
    if not passed:
        return _executed(body)
    if final == b"h" and private == b"?" and not REPORTING_MODES.isdisjoint(numbers):
        kept = b";".join(b"%d" % number for number in numbers if number not in REPORTING_MODES)
        return _executed(body) + (b"\x1b[?%bh" % kept if kept else b"")
    return whole.replace(_ENQUIRY, b"")
