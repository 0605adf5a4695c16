"""Finds the detach keys in the input of an attached window.

All input is passed on to the program, except the detach keys. If they are a sequence of several
keys, its first keys are held back until the next key shows whether the sequence continues; if not,
the held keys are passed on too. A key is recognized in both encodings that terminals use: the bytes
that xterm sends for it, and the key events that a program can request (`key_events`).

Rules:

- A key is recognized even if its bytes are split over two reads. For this, input that may be the
  start of a key is held back, unless it is a key by itself, such as Escape.
- Releases, repetitions and modifiers by themselves may be reported between the keys of a sequence.
  They are held back with the sequence, and do not end it.
- Bracketed paste is text: keys in it do not detach.
"""

import re
from enum import Enum, auto
from typing import Final

from acpterm.commands.attach.key_events import find_key_event, is_incomplete, key_event_of
from acpterm.keys import key_bytes, sequence

# Keys whose bytes are also the start of other keys: Escape, Alt-[ and Alt-O.
_PREFIX_KEYS: Final = (b"\x1b", b"\x1b[", b"\x1bO")
_PASTE_START: Final = b"\x1b[200~"
_PASTE_END: Final = b"\x1b[201~"


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
