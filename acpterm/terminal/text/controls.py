"""Removal of escape sequences from output: turns UTF-8 into a line program, which `line` runs.

A *line program* is UTF-8 text in which the only controls are TAB, LF, CR, BS, one character for
each erasure in the line: `ERASE_RIGHT`, `ERASE_LEFT` or `ERASE_LINE` of `line`, and the characters
for rows: `UP`, `DOWN`, `ERASE_BELOW` and `UNFOLLOWED` of `redraw`.

The rules are implemented twice, by patterns for complete sequences, which are fast, and by a state
machine for all others: a change of a rule must change both.

- Characters without a meaning are dropped before all other rules: NUL and the other C0 characters
  not named below, DEL, and C1 (U+0080 to U+009F; with UTF-8, programs send these controls as ESC
  sequences). VT and FF become LF.
- ESC begins a sequence, and ends the current one, if any. CAN and SUB also end a sequence. ST, the
  end of a string, needs no rule of its own: it is a sequence of ESC and a backslash.
- ESC, intermediates (0x20-0x2f), a final byte (0x30-0x7e): a sequence of two or more characters.
- CSI: parameters and intermediates (0x20-0x3f) up to a final byte (0x40-0x7e). These CSI sequences
  are translated: EL, `CSI Ps K` with a first parameter of 0 to 2; CHA to the first column,
  `CSI Ps G` with a first parameter of 0 or 1, which becomes a CR; and the movements and erasures of
  rows in `_rows`.
- Within an ESC or CSI sequence TAB, LF, CR and BS take effect at once and the sequence continues,
  as on a VT. A character beyond ASCII ends an ESC or CSI sequence, and is text; in a string, it is
  content.
- OSC, APC, PM, SOS and DCS begin strings, whose content is dropped. BEL ends an OSC as well. LF
  ends every string except DCS, and is kept. So a title that is not terminated hides at most one
  line. In a DCS (sixel), LF is content.
- A sequence has at most SEQUENCE_MAX characters; the characters after that are text. The parser
  stores only its state, the length of the sequence and one parameter.
- BEL, CAN and SUB outside a sequence are dropped.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from acpterm.terminal.text.line import ERASE_LEFT, ERASE_LINE, ERASE_RIGHT
from acpterm.terminal.text.redraw import DOWN, ERASE_BELOW, MOVE_MAX_ROWS, UNFOLLOWED, UP

#: The maximum length of a sequence in characters, including its ESC.
SEQUENCE_MAX = 8192

_C0 = bytes(range(0x20))
_MEANINGFUL = b"\a\b\t\n\v\f\r\x18\x1a\x1b"
_MEANINGLESS = bytes(c for c in _C0 if c not in _MEANINGFUL) + b"\x7f"
_AS_LF = bytes.maketrans(b"\v\f", b"\n\n")
_PRINTING = b"\t" + bytes(c for c in range(0x20, 0x100) if c != 0x7F)
_C1 = re.compile(rb"\xc2[\x80-\x9f]")

# An ESC begins a sequence whatever came before it. So each sequence can be matched by itself, and a
# sequence that is cut short ends at the next ESC. The state machine processes the sequences that
# this pattern does not match: CSI with controls inside, long strings, incomplete sequences.
_FINISHED = (
    rb"\x1b(?:"
    rb"\[[ -?]{0,256}(?:[@-~]|[\x18\x1a]%(cut)s)|"
    rb"\][^\a\x18\x1a\x1b\n]{0,1024}(?:[\a\x18\x1a]|(?=\n)%(cut)s)|"
    rb"[X^_][^\x18\x1a\x1b\n]{0,1024}(?:[\x18\x1a]|(?=\n)%(cut)s)|"
    rb"P[^\x18\x1a\x1b]{0,1024}(?:[\x18\x1a]%(cut)s)|"
    rb"[0-OQ-WYZ\\`-~]|[ -/]{1,16}(?:[0-~]|[\x18\x1a]%(cut)s)|"
    rb"[\x18\x1a]%(cut)s)"
)
#: A complete sequence.
_WHOLE = re.compile(_FINISHED % {b"cut": b""})
#: A sequence that is complete, or is cut short by an ESC or by the end of the data.
_CUT = re.compile(_FINISHED % {b"cut": rb"|(?=\x1b)|\Z"})

# EL is replaced by CAN and the character of the erasure. CAN ends a sequence before the EL, as the
# ESC of the EL would have ended it. Most programs write EL in one of these two ways, which
# `bytes.replace` finds much faster than a pattern.
_EL_RIGHT, _EL_LINE = b"\x1b[K", b"\x1b[2K"
_AS_RIGHT, _AS_LEFT, _AS_LINE = (
    b"\x18" + mark.encode() for mark in (ERASE_RIGHT, ERASE_LEFT, ERASE_LINE)
)
_EL = re.compile(rb"\x1b\[[0-9;]{1,256}K")
_EL_FORMS = tuple(
    (re.compile(rb"\x1b\[0{0,256}%b(?:;[0-9;]{0,256})?K" % first), mark)
    for first, mark in ((b"", _AS_RIGHT), (b"1", _AS_LEFT), (b"2", _AS_LINE))
)
# CHA to the first column, which is replaced by CR: many programs, such as those on Node, redraw a
# line of progress with it.
_CHA_HOME = re.compile(rb"\x1b\[0{0,256}1?(?:;[0-9;]{0,256})?G")

# The sequences that `_rows` translates: movements to other rows, and erasures of rows.
_ROW_FINALS = "ABEFHJLMSTdfru"
_ROW_ESCAPES = "8DEMc"
_TRANSLATED = re.compile(rb"\x1b(?:\[[0-9;]{0,256}[ABEFGHJKLMSTdfru]|[8DEMc])")
_UNFOLLOWED = re.compile(rb"\x1b(?:\[[0-9]{0,256}(?:;[0-9;]{0,256})?[HLMSTdfru]|[8DEMc])")
_FOLLOWED = re.compile(rb"\x1b\[([0-9]{0,256})(?:;[0-9;]{0,256})?([ABEFJ])")
_AS_UNFOLLOWED = b"\x18" + UNFOLLOWED.encode()

# SGR has no effect on text, and nearly all sequences in coloured output are SGR. Each one is
# replaced by CAN, which ends a sequence before it, as the ESC of the SGR would have. (`split` and
# `join` are faster than `sub`.)
_SGR = re.compile(rb"\x1b\[[0-9;:]{0,256}m")

_BEYOND_ASCII = bytes(range(0x80, 0x100))
_PLAIN = bytes(range(0x20, 0x7F)) + b"\b\t\n\r"


class _State(Enum):
    GROUND = auto()
    ESCAPE = auto()
    INTERMEDIATE = auto()
    CSI = auto()
    OSC = auto()
    DCS = auto()
    STRING = auto()


_INTRODUCERS = {
    "[": _State.CSI,
    "]": _State.OSC,
    "P": _State.DCS,
    "X": _State.STRING,
    "^": _State.STRING,
    "_": _State.STRING,
}
_STRING_END = {
    _State.OSC: re.compile("[\a\x18\x1a\n]"),
    _State.DCS: re.compile("[\x18\x1a]"),
    _State.STRING: re.compile("[\x18\x1a\n]"),
}
_ERASURE = (ERASE_RIGHT, ERASE_LEFT, ERASE_LINE)
#: The value of `_parameter` in a CSI that is not translated, since it has other characters.
_NOT_EL = -1


class Controls:
    """Turns a stream of whole UTF-8 characters into a line program."""

    __slots__ = ("_first_over", "_length", "_parameter", "_state", "plain")

    def __init__(self) -> None:
        self._state = _State.GROUND
        #: The length of the current sequence so far, in characters.
        self._length = 0
        #: The first parameter of the current CSI, up to 9999.
        self._parameter = 0
        #: Whether the first parameter of the current CSI has ended.
        self._first_over = False
        #: Whether the data fed last had no controls except TAB, LF and CR, nor any part of a
        #: sequence.
        self.plain = True

    @property
    def inside(self) -> bool:
        """Whether the data fed so far ends within an escape sequence."""
        return self._state is not _State.GROUND

    def feed(self, data: bytes) -> bytes:
        """Remove the escape sequences from the next output; return the line program."""
        if b"\xc2" in data:
            data = _C1.sub(b"", data)
        controls = data.translate(None, _PRINTING)
        self.plain = not self.inside and not controls.translate(None, b"\n\r")
        if not self.plain:
            data = self._strip(data.translate(_AS_LF, _MEANINGLESS))
            if any(ender in data for ender in (b"\a", b"\x18", b"\x1a")):
                data = data.translate(None, b"\a\x18\x1a")
        return _unix(data) if b"\r" in data else data

    def _strip(self, data: bytes) -> bytes:
        data = b"\x18".join(_SGR.split(data))
        first, last = data.find(b"\x1b"), data.rfind(b"\x1b")
        if first < 0:
            return self._consume(data) if self.inside else data
        return b"".join(
            (
                self._consume(data[:first]) if self.inside else data[:first],
                _strip_cut(data[first:last]),
                self._begin(data[last:]),
            )
        )

    def _begin(self, data: bytes) -> bytes:
        """Remove or translate the sequence at the beginning of `data`, which has no other ESC."""
        data = _translate(data)
        if data[0] != 0x1B:
            self._state = _State.GROUND
            return data
        if whole := _WHOLE.match(data):
            self._state = _State.GROUND
            return data[whole.end() :]
        self._state = _State.ESCAPE
        self._length = 1
        return self._consume(data[1:])

    def _consume(self, data: bytes) -> bytes:
        """Remove the rest of the current sequence from `data`, which has no ESC."""
        text = data.decode()
        done: list[str] = []
        at = 0
        while at < len(text) and self.inside:
            if ends := _STRING_END.get(self._state):
                at = self._skip_string(text, at, ends)
            else:
                at = self._step(text, at, done)
            if self._length >= SEQUENCE_MAX:
                self._state = _State.GROUND
        done.append(text[at:])
        return "".join(done).encode()

    def _skip_string(self, text: str, at: int, ends: re.Pattern[str]) -> int:
        limit = at + SEQUENCE_MAX - self._length
        if end := ends.search(text, at, limit):
            self._state = _State.GROUND
            return end.start() if end[0] == "\n" else end.end()
        skipped = min(len(text), limit) - at
        self._length += skipped
        return at + skipped

    def _step(self, text: str, at: int, done: list[str]) -> int:
        """Process one character of a sequence that is no string; return the next index.

        Appends to `done` a control that takes effect at once, or what stands for a translated
        sequence.
        """
        char = text[at]
        if char > "~":
            self._state = _State.GROUND
            return at
        self._length += 1
        if char in "\x18\x1a":
            self._state = _State.GROUND
        elif char < " ":
            done.append(char)
        elif self._state is _State.CSI:
            done.append(self._csi(char))
        elif char < "0":
            self._state = _State.INTERMEDIATE
        elif self._state is _State.ESCAPE:
            self._state = _INTRODUCERS.get(char, _State.GROUND)
            if char in _ROW_ESCAPES:
                done.append(UNFOLLOWED)
            self._parameter = 0
            self._first_over = False
        else:
            self._state = _State.GROUND
        return at + 1

    def _csi(self, char: str) -> str:
        if char >= "@":
            self._state = _State.GROUND
            if char == "K" and 0 <= self._parameter < len(_ERASURE):
                return _ERASURE[self._parameter]
            if char == "G" and 0 <= self._parameter <= 1:
                return "\r"
            if char in _ROW_FINALS and self._parameter != _NOT_EL:
                return _rows(char, self._parameter)
        elif char == ";":
            self._first_over = True
        elif not "0" <= char <= "9":
            self._parameter = _NOT_EL
        elif not self._first_over and self._parameter != _NOT_EL:
            self._parameter = min(9999, self._parameter * 10 + int(char))
        return ""


def is_ground(data: bytes | bytearray) -> bool:
    """Return whether `data` certainly ends outside of an escape sequence, whatever came before.

    That is so if the sequence at the last ESC is complete; or without ESC and control except BS,
    TAB, LF and CR, after `SEQUENCE_MAX` ASCII characters, since no sequence is longer.
    """
    last = data.rfind(b"\x1b")
    if last >= 0:
        return _WHOLE.match(data, last) is not None
    counted = data.translate(None, _BEYOND_ASCII)
    return len(counted) >= SEQUENCE_MAX and not counted.translate(None, _PLAIN)


def _strip_cut(data: bytes) -> bytes:
    """Remove or translate the sequences in `data`, which is followed by an ESC."""
    data = _translate(data)
    stripped = _CUT.sub(b"", data)
    if b"\x1b" not in stripped:
        return stripped
    head, *rest = data.split(b"\x1b")
    # `head` is the character of an erasure that was at the very beginning, or empty.
    return head + b"".join(map(_strip_one, rest))


def _strip_one(rest: bytes) -> bytes:
    sequence = b"\x1b" + rest
    if match := _CUT.match(sequence):
        return sequence[match.end() :]
    return Controls()._begin(sequence)  # noqa: SLF001 - a fresh machine for one sequence


def _translate(data: bytes) -> bytes:
    data = data.replace(_EL_RIGHT, _AS_RIGHT).replace(_EL_LINE, _AS_LINE)
    # Each pattern searches all sequences that are left, so most output is searched only once.
    if not _TRANSLATED.search(data):
        return data
    data = _FOLLOWED.sub(_as_rows, _UNFOLLOWED.sub(_AS_UNFOLLOWED, data))
    if _EL.search(data):
        for form, mark in _EL_FORMS:
            data = form.sub(mark, data)
    return _CHA_HOME.sub(b"\x18\r", data)


def moves_rows(data: bytes, begin: int, end: int) -> bool:
    """Return whether a sequence in `data[begin:end]` may move the cursor to another row."""
    return _FOLLOWED.search(data, begin, end) is not None


def _as_rows(match: re.Match[bytes]) -> bytes:
    return b"\x18" + _rows(match[2].decode(), int(match[1] or b"0")).encode()


def _rows(final: str, parameter: int) -> str:
    """Return what stands for the CSI sequence with `final`, which acts on rows of the screen."""
    count = min(max(1, parameter), MOVE_MAX_ROWS)
    match final:
        case "A":
            return UP * count
        case "B":
            return DOWN * count
        case "E":
            return DOWN * count + "\r"
        case "F":
            return UP * count + "\r"
        case "J" if not parameter:
            return ERASE_BELOW
        case _:
            return UNFOLLOWED


def _unix(data: bytes) -> bytes:
    """Return a line program with an LF in place of each CRLF, and the CR at its end kept.

    May remove other CRs too, such as that of LF CR, if the text stays the same.
    """
    # If each run of CRs and LFs in `body` has as many CRs as LFs, all CRs are removed from `body`:
    # this is faster than to replace each CRLF. To check all runs at once, compare `body` without
    # its LFs to `body` without its CRs and with each LF replaced by a CR.
    begin = data.startswith(b"\n")
    end = len(data) - data.endswith(b"\r")
    body = data[begin:end] if begin or end < len(data) else data
    unix = body.replace(b"\r", b"")
    if unix.replace(b"\n", b"\r") != body.replace(b"\n", b""):
        return data.replace(b"\r\n", b"\n")
    return unix if body is data else data[:begin] + unix + data[end:]
