"""Keys as a terminal reports them to a program that has asked for it: read, and compared.

There are three kinds of reports: kitty's for characters, `CSI code:shifted:base ; modifiers:event ;
text u`, of which all but the code may be missing; the same for keys that always were sequences, as
`CSI 24 ; modifiers:event ~`; and xterm's of modifyOtherKeys, `CSI 27 ; modifiers ; code ~`.

Rules:

- A letter is a key in lower case; what is typed in upper case has Shift. With Ctrl there is no
  difference between the two.
- Caps Lock and Num Lock are no modifiers.
- A key whose character is not in ASCII is also the one that is at its place on an American
  keyboard, if that is reported: so that C-b is found where Russian is typed.
"""

import re
from typing import Final, NamedTuple

from acpterm.keys import CTRL, CURSOR, LETTERS, NUMBERS, SHIFT, SIMPLE, parse_key

# What a report may be as long as, in bytes between CSI and its end: text may be in it.
_REPORT_BYTES_MAX: Final = 128
_REPORT: Final = re.compile(rb"\x1b\[([0-9:;]{0,%d})([A-DFHPQSu~])" % _REPORT_BYTES_MAX)
_BEGUN: Final = re.compile(rb"\x1b\[[0-9:;]{1,%d}" % _REPORT_BYTES_MAX)
_CODES: Final = {said[0]: name for name, said in SIMPLE.items() if len(said) == 1}
# F3 is a number here: the end of its letter's report is that of a cursor's position.
_LETTERS: Final = {letter: name for name, letter in (CURSOR | LETTERS).items() if letter != "R"}
_NUMBERS: Final = {number: name for name, number in NUMBERS.items()} | {
    7: "home",
    8: "end",
    **{11 + number: name for number, name in enumerate(LETTERS)},
}
# Of `CSI … ~`: the rest is a key with its character's code, in xterm's way.
_OTHER: Final = 27
# Shift, Alt, Ctrl, Super, Hyper and Meta; what is above are locks.
_MODIFIERS: Final = 0x3F
_PRESSED: Final = 1
# Shift, Ctrl and all other modifiers, left and right, as keys.
_MODIFIER_KEYS: Final = range(57441, 57455)


class KeyEvent(NamedTuple):
    """A key: a character, in lower case if it is a letter, or a name; and its modifiers."""

    name: str
    modifiers: int


class KeyEvents(NamedTuple):
    """What is reported of a key."""

    size: int
    """How many bytes that takes."""
    keys: frozenset[KeyEvent]
    """The keys that it may be called by; none if it is one that has no name here."""
    minor: bool
    """Whether it is a release, a repetition, or a modifier by itself: no key is pressed anew."""


def key_event_of(name: str) -> KeyEvent:
    """Give the key of a name, as in `acpterm.keys`. Raises `ValueError`."""
    modifiers, plain = parse_key(name)
    if plain == "btab":
        return KeyEvent("tab", modifiers | SHIFT)
    return _key(plain, modifiers)


def find_key_event(typed: bytes) -> KeyEvents | None:
    """Give the report that `typed` begins with, if it does."""
    found = _REPORT.match(typed)
    if found is None:
        return None
    # Fields and their parts: what is not said is -1.
    fields = [
        [int(part or -1) for part in field.split(":")] for field in found[1].decode().split(";")
    ]
    last = found[2].decode()
    modifiers, event = _at(fields, 1, 0, 1), _at(fields, 1, 1, _PRESSED)
    modifiers = max(0, modifiers - 1) & _MODIFIERS
    code = _at(fields, 0, 0, 0)
    keys: set[KeyEvent] = set()
    if last == "u":
        keys = _said_by_kitty(fields, modifiers)
    elif last != "~":
        keys = {KeyEvent(_LETTERS[last], modifiers)}
    elif code == _OTHER:
        keys = _said_by_xterm(_at(fields, 2, 0, 0), modifiers)
    elif code in _NUMBERS:
        keys = {KeyEvent(_NUMBERS[code], modifiers)}
    minor = event != _PRESSED or (last == "u" and code in _MODIFIER_KEYS)
    return KeyEvents(found.end(), frozenset(keys), minor)


def is_begun(typed: bytes) -> bool:
    """Whether this may be the beginning of a report; CSI alone is not, as it is Alt with [."""
    return _BEGUN.fullmatch(typed) is not None


def _said_by_kitty(fields: list[list[int]], modifiers: int) -> set[KeyEvent]:
    code, shifted, base = (_at(fields, 0, part, 0) for part in range(3))
    keys = _keys(code, modifiers)
    if code > 0x7F:
        keys |= _keys(base, modifiers)
    if modifiers & SHIFT and not _is_letter(shifted):
        keys |= _keys(shifted, modifiers & ~SHIFT)
    if not modifiers & ~SHIFT and len(fields) > 2 and len(fields[2]) == 1:
        keys |= _keys(fields[2][0], 0)
    return keys


def _said_by_xterm(code: int, modifiers: int) -> set[KeyEvent]:
    # The code is that of the character, for which Shift may have been needed.
    return _keys(code, modifiers) | (set() if _is_letter(code) else _keys(code, modifiers & ~SHIFT))


def _keys(code: int, modifiers: int) -> set[KeyEvent]:
    """Give the key with the code of a character; none for what is no such code."""
    if not 0 < code < 0x110000:
        return set()
    return {_key(_CODES.get(code) or chr(code), modifiers)}


def _key(name: str, modifiers: int) -> KeyEvent:
    if len(name) == 1 and _is_letter(ord(name)) and name != name.lower():
        return KeyEvent(name.lower(), modifiers if modifiers & CTRL else modifiers | SHIFT)
    return KeyEvent(name, modifiers)


def _is_letter(code: int) -> bool:
    """Whether it is one that has an upper and a lower case, one character each."""
    if not 0 < code < 0x110000:
        return False
    char = chr(code)
    return char.lower() != char.upper() and len(char.lower()) == 1


def _at(fields: list[list[int]], field: int, part: int, otherwise: int) -> int:
    """Give a number in a report."""
    if field < len(fields) and part < len(fields[field]) and fields[field][part] >= 0:
        return fields[field][part]
    return otherwise
