"""Finds the detach keys in the input of an attached window.

All input is passed on to the program, except the detach keys. If they are a sequence of several
keys, its first keys are held back until the next key shows whether the sequence continues; if not,
the held keys are passed on too. A key is recognized in both encodings that terminals use: the bytes
that xterm sends for it, and the key events that a program can request.

Rules:

- A key is recognized even if its bytes are split over two reads. For this, input that may be the
  start of a key is held back, unless it is a key by itself, such as Escape.
- Releases, repetitions and modifiers by themselves may be reported between the keys of a sequence.
  They are held back with the sequence, and do not end it.
- Bracketed paste is text: keys in it do not detach.

There are three formats of key events:

- kitty's, for characters: `CSI code:shifted:base ; modifiers:event ; text u`. All fields but the
  code are optional.
- kitty's, for function keys, in their xterm sequences: `CSI 24 ; modifiers:event ~`.
- xterm's modifyOtherKeys: `CSI 27 ; modifiers ; code ~`.

Rules:

- A letter is named in lower case, and an upper-case letter has Shift. With Ctrl the two cases are
  the same key.
- Caps Lock and Num Lock are not modifiers.
- A key whose character is not in ASCII is also treated as the key at its position on a US keyboard,
  if the terminal reports that position. So C-b is found on a Russian keyboard.
"""

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from acpterm.keys import (
    CTRL,
    CURSOR,
    LETTERS,
    NUMBERS,
    SHIFT,
    SIMPLE,
    key_bytes,
    parse_key,
    sequence,
)

# Keys whose bytes are also the start of other keys: Escape, Alt-[ and Alt-O.
_PREFIX_KEYS: Final = (b"\x1b", b"\x1b[", b"\x1bO")
_PASTE_START: Final = b"\x1b[200~"
_PASTE_END: Final = b"\x1b[201~"

# Maximum bytes of a report between CSI and the final byte. The report may contain typed text.
_REPORT_BYTES_MAX: Final = 128
_REPORT: Final = re.compile(rb"\x1b\[([0-9:;]{0,%d})([A-DFHPQSu~])" % _REPORT_BYTES_MAX)
_INCOMPLETE: Final = re.compile(rb"\x1b\[[0-9:;]{1,%d}" % _REPORT_BYTES_MAX)
_CODES: Final = {encoded[0]: name for name, encoded in SIMPLE.items() if len(encoded) == 1}
# F3 is reported by number, since a final R would be a cursor position report.
_LETTERS: Final = {letter: name for name, letter in (CURSOR | LETTERS).items() if letter != "R"}
_NUMBERS: Final = {number: name for name, number in NUMBERS.items()} | {
    7: "home",
    8: "end",
    **{11 + number: name for number, name in enumerate(LETTERS)},
}
# The number in `CSI 27 ; … ~` that marks a report of modifyOtherKeys.
_MODIFY_OTHER_KEYS: Final = 27
# The bits of Shift, Alt, Ctrl, Super, Hyper and Meta. Higher bits are Caps Lock and Num Lock.
_MODIFIERS: Final = 0x3F
_PRESSED: Final = 1
# Codes of the modifier keys themselves, left and right.
_MODIFIER_KEYS: Final = range(57441, 57455)


class KeyEvent(NamedTuple):
    """A key (a character, letters in lower case, or a name in `acpterm.keys`) and modifier bits."""

    name: str
    modifiers: int


class KeyEvents(NamedTuple):
    """What one report may stand for: a Cyrillic letter is also the Latin one at its position."""

    size: int
    keys: frozenset[KeyEvent]
    """All keys that the report may stand for; empty for a key without a name in `acpterm.keys`."""
    minor: bool
    """Whether the event is a release, a repetition or a modifier by itself: no new key press."""


def key_event_of(name: str) -> KeyEvent:
    """Parse the name of a key, such as `C-b`; raise `ValueError` if it is invalid."""
    modifiers, plain = parse_key(name)
    if plain == "btab":
        return KeyEvent("tab", modifiers | SHIFT)
    return _key(plain, modifiers)


def find_key_event(typed: bytes) -> KeyEvents | None:
    """Parse the report with which `typed` begins, if it does."""
    found = _REPORT.match(typed)
    if found is None:
        return None
    # Fields and their parts; a missing number is -1.
    fields = [
        [int(part or -1) for part in field.split(":")] for field in found[1].decode().split(";")
    ]
    last = found[2].decode()
    modifiers, event = _get(fields, 1, 0, 1), _get(fields, 1, 1, _PRESSED)
    modifiers = max(0, modifiers - 1) & _MODIFIERS
    code = _get(fields, 0, 0, 0)
    keys: set[KeyEvent] = set()
    if last == "u":
        keys = _kitty_keys(fields, modifiers)
    elif last != "~":
        keys = {KeyEvent(_LETTERS[last], modifiers)}
    elif code == _MODIFY_OTHER_KEYS:
        keys = _xterm_keys(_get(fields, 2, 0, 0), modifiers)
    elif code in _NUMBERS:
        keys = {KeyEvent(_NUMBERS[code], modifiers)}
    minor = event != _PRESSED or (last == "u" and code in _MODIFIER_KEYS)
    return KeyEvents(found.end(), frozenset(keys), minor)


def is_incomplete(typed: bytes) -> bool:
    # CSI alone does not count: a terminal sends the same bytes for Alt-[.
    return _INCOMPLETE.fullmatch(typed) is not None


def _kitty_keys(fields: list[list[int]], modifiers: int) -> set[KeyEvent]:
    code, shifted, base = (_get(fields, 0, part, 0) for part in range(3))
    keys = _keys(code, modifiers)
    if code > 0x7F:
        keys |= _keys(base, modifiers)
    if modifiers & SHIFT and not _is_letter(shifted):
        keys |= _keys(shifted, modifiers & ~SHIFT)
    if not modifiers & ~SHIFT and len(fields) > 2 and len(fields[2]) == 1:
        keys |= _keys(fields[2][0], 0)
    return keys


def _xterm_keys(code: int, modifiers: int) -> set[KeyEvent]:
    # The code is that of the typed character. The keyboard may need Shift for this character, so
    # the report also stands for the key without Shift.
    return _keys(code, modifiers) | (set() if _is_letter(code) else _keys(code, modifiers & ~SHIFT))


def _keys(code: int, modifiers: int) -> set[KeyEvent]:
    if not 0 < code < 0x110000:
        return set()
    return {_key(_CODES.get(code) or chr(code), modifiers)}


def _key(name: str, modifiers: int) -> KeyEvent:
    if len(name) == 1 and _is_letter(ord(name)) and name != name.lower():
        return KeyEvent(name.lower(), modifiers if modifiers & CTRL else modifiers | SHIFT)
    return KeyEvent(name, modifiers)


def _is_letter(code: int) -> bool:
    """Return whether a character has two cases, the lower one being one character."""
    if not 0 < code < 0x110000:
        return False
    char = chr(code)
    return char.lower() != char.upper() and len(char.lower()) == 1


def _get(fields: list[list[int]], field: int, part: int, default: int) -> int:
    if field < len(fields) and part < len(fields[field]) and fields[field][part] >= 0:
        return fields[field][part]
    return default


class _Match(Enum):
    KEY = auto()
    MINOR = auto()
    """A report of a release, a repetition or a modifier by itself: no new key press."""
    INCOMPLETE = auto()
    """Possibly only the first bytes of a key or of a paste: more input is needed to decide."""
    PASTE = auto()
    OTHER = auto()


class DetachFilter:
    """Finds the detach keys `keys` in input; raises `ValueError` for invalid names."""

    def __init__(self, keys: str) -> None:
        names = sequence(keys)
        self.keys: Final = " ".join(names)
        self._steps: Final = [_Step(name) for name in names]
        # How many keys of the sequence were typed, and the input held back since the first one.
        self._matched = 0
        self._held: list[bytes] = []
        self._rest = b""
        self._pasting = False

    def feed(self, typed: bytes) -> tuple[bytes, bool]:
        """Return the input to pass on, and whether the detach keys follow it."""
        typed, self._rest = self._rest + typed, b""
        passed: list[bytes] = []
        while typed:
            if self._pasting:
                typed = self._paste(typed, passed)
                continue
            step = self._steps[self._matched]
            if not self._matched and (at := step.find_start(typed)):
                passed.append(typed[:at])
                typed = typed[at:]
                continue
            match, size = step.match(typed)
            if match is _Match.INCOMPLETE:
                self._rest = typed
                break
            if match is _Match.KEY:
                self._matched += 1
                if self._matched == len(self._steps):
                    self._reset()
                    return b"".join(passed), True
                self._held.append(typed[:size])
            elif self._matched and match is _Match.MINOR:
                self._held.append(typed[:size])
            elif self._matched:
                # This key does not continue the sequence, but it may begin a new one.
                passed += self._held
                self._reset()
                continue
            else:
                self._pasting = match is _Match.PASTE
                passed.append(typed[:size])
            typed = typed[size:]
        return b"".join(passed), False

    def _reset(self) -> None:
        self._matched = 0
        self._held.clear()

    def _paste(self, typed: bytes, passed: list[bytes]) -> bytes:
        end = typed.find(_PASTE_END)
        if end >= 0:
            self._pasting = False
            end += len(_PASTE_END)
            passed.append(typed[:end])
            return typed[end:]
        # The length of the longest suffix that may be the start of the end marker.
        size = next(n for n in range(len(_PASTE_END), -1, -1) if typed.endswith(_PASTE_END[:n]))
        passed.append(typed[: len(typed) - size])
        self._rest = typed[len(typed) - size :]
        return b""


class _Step:
    def __init__(self, name: str) -> None:
        self._bytes: Final = key_bytes(name)
        # The bytes of a cursor key depend on the cursor key mode that the program has set.
        self._encodings: Final = {self._bytes, key_bytes(name, application=True)}
        self._key: Final = key_event_of(name)
        self._first: Final = re.compile(b"[\x1b%s]" % re.escape(self._bytes[:1]))

    def find_start(self, typed: bytes) -> int:
        """Return the first index at which the key or a paste may start."""
        found = self._first.search(typed)
        return found.start() if found else len(typed)

    def match(self, typed: bytes) -> tuple[_Match, int]:
        """Return what `typed` begins with, and how many bytes that is."""
        if typed.startswith(_PASTE_START):
            return _Match.PASTE, len(_PASTE_START)
        if report := find_key_event(typed):
            pressed = _Match.KEY if self._key in report.keys else _Match.OTHER
            return _Match.MINOR if report.minor else pressed, report.size
        if is_incomplete(typed):
            return _Match.INCOMPLETE, len(typed)
        for encoding in self._encodings:
            # A key that is a prefix of other keys matches only if no input follows.
            if typed == encoding or (encoding not in _PREFIX_KEYS and typed.startswith(encoding)):
                return _Match.KEY, len(encoding)
        candidates = (*self._encodings, _PASTE_START)
        if typed not in _PREFIX_KEYS and any(keys.startswith(typed) for keys in candidates):
            return _Match.INCOMPLETE, len(typed)
        return _Match.OTHER, 1
