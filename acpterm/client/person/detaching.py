"""The keys that leave an attached terminal, found in what is typed.

What is typed is passed on but for these keys. Of several after each other, those that came so far
are held back until it shows that they are not meant: then they are passed on, too. A key pressed
with Ctrl is known in both ways that terminals say it (as a control character, and as `CSI u`).
"""

import re
from typing import Final

from acpterm.client.person.keys import key_bytes

_CONTROL: Final = re.compile(r"C-(.)", re.DOTALL)


class Detaching:
    """Looks for the keys named by `keys`, with spaces between. Raises `ValueError` for bad ones."""

    def __init__(self, keys: str) -> None:
        names = keys.split()
        if not names:
            raise ValueError("no key is named")
        self._steps: Final = [_spellings(name) for name in names]
        self._held: list[bytes] = []

    def feed(self, typed: bytes) -> tuple[bytes, bool]:
        """Take what is typed: what of it is to be passed on, and whether to leave after that."""
        passed = b""
        while typed:
            step = self._steps[len(self._held)]
            if found := next((keys for keys in step if typed.startswith(keys)), None):
                self._held.append(found)
                typed = typed[len(found) :]
                if len(self._held) == len(self._steps):
                    self._held.clear()
                    return passed, True
                continue
            if self._held:
                # Not meant; what comes now may be the first of them again.
                passed += b"".join(self._held)
                self._held.clear()
                continue
            begins = [at for keys in step if (at := typed.find(keys)) > 0]
            at = min(begins, default=len(typed))
            passed, typed = passed + typed[:at], typed[at:]
        return passed, False


def _spellings(name: str) -> list[bytes]:
    plain = key_bytes(name)
    if control := _CONTROL.fullmatch(name):
        code = ord(control[1].lower())
        return [plain, f"\x1b[{code};5u".encode(), f"\x1b[27;5;{code}~".encode()]
    return [plain]
