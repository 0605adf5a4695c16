"""The keys that leave an attached terminal, found in what is typed.

What is typed is passed on but for these keys. Of several after each other, those that came so far
are held back until it shows that they are not meant: then they are passed on, too. A key pressed
with Ctrl is known in the ways that terminals say it: as a control character, and, to a program that
has asked for that, as `CSI u` (with Caps Lock and Num Lock on or off) or as `CSI 27`.

Rules:

- A key that is split over two reads is found. What may be the beginning of one is held back for
  that, unless it is a key by itself, as Escape is.
- What is pasted in brackets is text: no key in it leaves.
"""

import re
from itertools import product
from typing import Final

from acpterm.keys import key_bytes, sequence

_CONTROL: Final = re.compile(r"C-(.)", re.DOTALL)
# What begins other keys, and is a key: Escape, Alt with [ and with O.
_KEYS: Final = (b"\x1b", b"\x1b[", b"\x1bO")
_PASTE: Final = b"\x1b[200~"
_PASTED: Final = b"\x1b[201~"
# Ctrl, as `CSI u` says it: alone, with Caps Lock, with Num Lock, with both; and that it is pressed.
_MODIFIERS: Final = (5, 5 + 64, 5 + 128, 5 + 64 + 128)
_EVENTS: Final = ("", ":1")


class Detaching:
    """Looks for the keys named by `keys`, with spaces between. Raises `ValueError` for bad ones."""

    def __init__(self, keys: str) -> None:
        names = sequence(keys)
        self.keys: Final = " ".join(names)
        self._steps: Final = [_spellings(name) for name in names]
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
            step = self._steps[len(self._held)]
            if found := next((keys for keys in step if typed.startswith(keys)), None):
                self._held.append(found)
                typed = typed[len(found) :]
                if len(self._held) == len(self._steps):
                    self._held.clear()
                    return b"".join(passed), True
                continue
            wanted = (*step, _PASTE)
            if self._held:
                if _is_begun(typed, wanted):
                    self._rest = typed
                    break
                # Not meant; what comes now may be the first of them again.
                passed += self._held
                self._held.clear()
                continue
            if typed.startswith(_PASTE):
                self._pasting = True
                passed.append(_PASTE)
                typed = typed[len(_PASTE) :]
                continue
            at = min((at for keys in wanted if (at := typed.find(keys)) >= 0), default=-1)
            if at < 0:
                at = _begun_at(typed, wanted)
                self._rest = typed[at:]
                passed.append(typed[:at])
                break
            passed.append(typed[:at])
            typed = typed[at:]
        return b"".join(passed), False

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


def _spellings(name: str) -> tuple[bytes, ...]:
    plain = key_bytes(name)
    if control := _CONTROL.fullmatch(name):
        code = ord(control[1].lower())
        said = [f"\x1b[{code};{both[0]}{both[1]}u" for both in product(_MODIFIERS, _EVENTS)]
        return (plain, *(keys.encode() for keys in (*said, f"\x1b[27;5;{code}~")))
    return (plain,)


def _is_begun(typed: bytes, wanted: tuple[bytes, ...]) -> bool:
    """Whether this is the beginning of a key, and no key by itself."""
    return typed not in _KEYS and any(keys.startswith(typed) for keys in wanted)


def _begun_at(typed: bytes, wanted: tuple[bytes, ...]) -> int:
    """Give where a key begins that is not whole; the end if none does."""
    longest = max(map(len, wanted))
    for at in range(max(0, len(typed) - longest + 1), len(typed)):
        if _is_begun(typed[at:], wanted):
            return at
    return len(typed)
