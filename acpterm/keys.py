"""Key names, as in tmux, and the bytes that xterm sends for each key.

A key is a character (`a`) or a name (`Enter`, `F5`). Modifiers precede the key in any order: `C-`
Ctrl, `M-` Alt, `S-` Shift (`C-c`, `M-C-Left`). Names and modifiers may be in upper or lower case.
"""

import re
from typing import Final

_ESC: Final = b"\x1b"
# Keys whose bytes do not depend on modifiers, except that Alt puts an ESC before them.
SIMPLE: Final = {
    "enter": b"\r",
    "tab": b"\t",
    "btab": b"\x1b[Z",
    "escape": _ESC,
    "space": b" ",
    "bspace": b"\x7f",
}
# Keys whose sequence has a parameter for modifiers. The sequence is CSI or SS3 and a letter, or
# CSI, a number and `~`.
CURSOR: Final = {"up": "A", "down": "B", "right": "C", "left": "D", "end": "F", "home": "H"}
LETTERS: Final = {"f1": "P", "f2": "Q", "f3": "R", "f4": "S"}
NUMBERS: Final = {
    "insert": 2,
    "delete": 3,
    "pageup": 5,
    "pagedown": 6,
    **dict(zip((f"f{n}" for n in range(5, 13)), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)),
}
_ALIASES: Final = {
    "ic": "insert",
    "dc": "delete",
    "ppage": "pageup",
    "pgup": "pageup",
    "npage": "pagedown",
    "pgdn": "pagedown",
    "esc": "escape",
    "backspace": "bspace",
    "return": "enter",
}
# Ctrl with characters other than letters and @ [ \ ] ^ _ .
_CONTROLS: Final = {" ": 0, "?": 0x7F, "/": 0x1F}
#: The bits of modifiers. Their sum plus 1 is xterm's parameter.
SHIFT, ALT, CTRL = 1, 2, 4
_MODIFIERS: Final = {"S": SHIFT, "M": ALT, "C": CTRL}
_MODIFIED: Final = re.compile(r"((?:[CMS]-)*)(.+)", re.IGNORECASE | re.DOTALL)

KNOWN: Final = (
    "a character, Enter, Tab, BTab, Escape, Space, BSpace, Up, Down, Left, Right, Home, End, "
    "PageUp (PPage), PageDown (NPage), Insert (IC), Delete (DC), F1 to F12; "
    "before it C- (Ctrl), M- (Alt) and S- (Shift), as in C-c, M-x or C-Left"
)


def sequence(names: str) -> list[str]:
    """Return the key names in `names`, which are separated by spaces, such as `C-b d`.

    Raises `ValueError` if `names` has no name, or an unknown one.
    """
    found = names.split()
    if not found:
        raise ValueError("no key is named")
    for name in found:
        key_bytes(name)
    return found


def looks_like_key(word: str) -> bool:
    """Return whether `word` is probably the name of a key, and not text to type.

    Returns True if `word` is a valid key name, has at least two characters, and is not all in lower
    case.
    """
    if len(word) < 2 or word == word.lower():
        return False
    try:
        key_bytes(word)
    except ValueError:
        return False
    return True


def depends_on_cursor_mode(name: str) -> bool:
    """Return whether `name` is a key whose bytes may depend on the cursor key mode (DECCKM).

    These are the arrow keys, Home and End.
    """
    return _MODIFIED.sub(r"\2", name, count=1).lower() in CURSOR


def parse_key(name: str) -> tuple[int, str]:
    """Return the bits of the modifiers in `name`, and the key without modifiers.

    The modifiers are a sum of `SHIFT`, `ALT` and `CTRL`. The key is a character, or the main name
    of a key in lower case: `escape` for `Esc`. Whether there is such a key is not checked. Raises
    `ValueError`, with the known names, only if `name` is empty.
    """
    found = _MODIFIED.fullmatch(name)
    if found is None:
        raise _unknown(name)
    modifiers = 0
    for letter in found[1].upper().replace("-", ""):
        modifiers |= _MODIFIERS[letter]
    if len(found[2]) == 1:
        return modifiers, found[2]
    lower = found[2].lower()
    return modifiers, _ALIASES.get(lower, lower)


def key_bytes(name: str, *, application: bool = False) -> bytes:
    """Return the bytes that xterm sends for a key.

    `name` may have modifiers, as in `C-Left`. `application` is true if the program has set the
    application mode of cursor keys (DECCKM). Raises `ValueError`, which says what is valid, if
    there is no such key.
    """
    modifiers, plain = parse_key(name)
    if plain in CURSOR:
        return _lettered(CURSOR[plain], modifiers, ss3=application)
    if plain in LETTERS:
        return _lettered(LETTERS[plain], modifiers, ss3=True)
    if plain in NUMBERS:
        parameter = f";{1 + modifiers}" if modifiers else ""
        return f"\x1b[{NUMBERS[plain]}{parameter}~".encode()
    if plain in SIMPLE:
        return _simple(name, plain, modifiers)
    if len(plain) == 1:
        return _character(name, plain, modifiers)
    raise _unknown(name)


def _lettered(letter: str, modifiers: int, *, ss3: bool) -> bytes:
    if modifiers:
        return f"\x1b[1;{1 + modifiers}{letter}".encode()
    return f"\x1b{'O' if ss3 else '['}{letter}".encode()


def _simple(name: str, plain: str, modifiers: int) -> bytes:
    keys = SIMPLE[plain]
    if modifiers & CTRL:
        control = {"space": b"\0", "bspace": b"\b"}
        if plain not in control:
            raise ValueError(f"a terminal has no key {name!r}: Ctrl changes nothing of {plain}")
        keys = control[plain]
    if modifiers & SHIFT and plain == "tab":
        keys = SIMPLE["btab"]
    return _ESC + keys if modifiers & ALT else keys


def _character(name: str, char: str, modifiers: int) -> bytes:
    if modifiers & SHIFT:
        char = char.upper()
    keys = char.encode(errors="surrogateescape")
    if modifiers & CTRL:
        code = _CONTROLS.get(char)
        if code is None and char.isascii() and "@" <= char.upper() <= "_":
            code = ord(char.upper()) & 0x1F
        if code is None:
            raise ValueError(
                f"a terminal has no key {name!r}: Ctrl goes with letters and @[\\]^_?/"
            )
        keys = bytes((code,))
    return _ESC + keys if modifiers & ALT else keys


def _unknown(name: str) -> ValueError:
    return ValueError(f"there is no key {name!r}: there is {KNOWN}")
