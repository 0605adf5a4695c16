"""The keys that leave an attached terminal, found in what is typed.

What is typed is passed on but for these keys. Of several after each other, those that came so far
are held back until it shows that they are not meant: then they are passed on, too. A key is known
in the ways that terminals say it: by the bytes that xterm has for it, and by what is reported to a
program that has asked for that (`reports`).

Rules:

- A key that is split over two reads is found. What may be the beginning of one is held back for
  that, unless it is a key by itself, as Escape is.
- That a key is let go or held down, and a modifier by itself, may be reported between keys that
  come after each other. It is held back with them, and is no other key.
- What is pasted in brackets is text: no key in it leaves.
"""

import re
from enum import Enum, auto
from typing import Final

from acpterm.client.user.attach.key_events import find_key_event, is_begun, key_event_of
from acpterm.keys import key_bytes, sequence

# What begins other keys, and is a key: Escape, Alt with [ and with O.
_KEYS: Final = (b"\x1b", b"\x1b[", b"\x1bO")
_PASTE: Final = b"\x1b[200~"
_PASTED: Final = b"\x1b[201~"


class _Match(Enum):
    """What something typed is."""

    KEY = auto()
    """The key that is looked for."""
    MINOR = auto()
    """Nothing that is pressed."""
    BEGUN = auto()
    """All that there is, and maybe the beginning of the key."""
    PASTE = auto()
    OTHER = auto()


class DetachFilter:
    """Looks for the keys named by `keys`, with spaces between. Raises `ValueError` for bad ones."""

    def __init__(self, keys: str) -> None:
        names = sequence(keys)
        self.keys: Final = " ".join(names)
        self._steps: Final = [_Step(name) for name in names]
        # How many of the keys have come, and all that is held back since the first.
        self._come = 0
        self._held: list[bytes] = []
        self._rest = b""
        self._pasting = False

    def feed(self, typed: bytes) -> tuple[bytes, bool]:
        """Take what is typed: what of it is to be passed on, and whether to leave after that."""
        typed, self._rest = self._rest + typed, b""
        passed: list[bytes] = []
        while typed:
            if self._pasting:
                typed = self._paste(typed, passed)
                continue
            step = self._steps[self._come]
            if not self._come and (at := step.may_begin(typed)):
                passed.append(typed[:at])
                typed = typed[at:]
                continue
            what, size = step.look(typed)
            if what is _Match.BEGUN:
                self._rest = typed
                break
            if what is _Match.KEY:
                self._come += 1
                if self._come == len(self._steps):
                    self._forget()
                    return b"".join(passed), True
                self._held.append(typed[:size])
            elif self._come and what is _Match.MINOR:
                self._held.append(typed[:size])
            elif self._come:
                # Not meant; what comes now may be the first of them again.
                passed += self._held
                self._forget()
                continue
            else:
                self._pasting = what is _Match.PASTE
                passed.append(typed[:size])
            typed = typed[size:]
        return b"".join(passed), False

    def _forget(self) -> None:
        self._come = 0
        self._held.clear()

    def _paste(self, typed: bytes, passed: list[bytes]) -> bytes:
        """Pass on what is pasted; give what comes behind it."""
        end = typed.find(_PASTED)
        if end >= 0:
            self._pasting = False
            end += len(_PASTED)
            passed.append(typed[:end])
            return typed[end:]
        # The end may have begun. It comes, so that its first bytes can wait.
        size = next(n for n in range(len(_PASTED), -1, -1) if typed.endswith(_PASTED[:n]))
        passed.append(typed[: len(typed) - size])
        self._rest = typed[len(typed) - size :]
        return b""


class _Step:
    """One of the keys."""

    def __init__(self, name: str) -> None:
        self._bytes: Final = key_bytes(name)
        # A cursor key's depend on what the program has set.
        self._ways: Final = {self._bytes, key_bytes(name, application=True)}
        self._key: Final = key_event_of(name)
        self._first: Final = re.compile(b"[\x1b%s]" % re.escape(self._bytes[:1]))

    def may_begin(self, typed: bytes) -> int:
        """Give where it may begin, at the earliest; the end of `typed` if nowhere."""
        found = self._first.search(typed)
        return found.start() if found else len(typed)

    def look(self, typed: bytes) -> tuple[_Match, int]:
        """Say what `typed` begins with, and how many bytes that takes."""
        if typed.startswith(_PASTE):
            return _Match.PASTE, len(_PASTE)
        if report := find_key_event(typed):
            pressed = _Match.KEY if self._key in report.keys else _Match.OTHER
            return _Match.MINOR if report.minor else pressed, report.size
        if is_begun(typed):
            return _Match.BEGUN, len(typed)
        for way in self._ways:
            # One that begins others is it only where nothing follows.
            if typed == way or (way not in _KEYS and typed.startswith(way)):
                return _Match.KEY, len(way)
        if typed not in _KEYS and any(keys.startswith(typed) for keys in (*self._ways, _PASTE)):
            return _Match.BEGUN, len(typed)
        return _Match.OTHER, 1
