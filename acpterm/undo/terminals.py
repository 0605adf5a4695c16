"""The terminals whose commands have a way back: the daemon forgets those that are released.

A file beside the stores has a line of JSON for each: its id, when its command began, and where.
"""

import json
import os
from contextlib import suppress
from typing import Final, NamedTuple

# Some 10,000 terminals.
_BYTES_MAX: Final = 1024 * 1024
_PREFIX: Final = "term_"


class Known(NamedTuple):
    id: str
    time: float
    """When the command began, in seconds since 1970."""
    directory: str


def note(stores: str, known: Known) -> None:
    """Add a terminal. Raises `OSError`."""
    path = _path(stores)
    with open(path, "a", encoding="ascii", opener=_open_private) as file:
        file.write(json.dumps(known) + "\n")
        is_large = file.tell() > _BYTES_MAX
    if is_large:
        lines = _lines(stores)
        with open(f"{path}.new", "w", encoding="ascii", opener=_open_private) as file:
            file.writelines(lines[len(lines) // 2 :])
        os.replace(f"{path}.new", path)


def find(stores: str, name: str) -> list[Known]:
    """Return the terminals whose id begins with `name`, the oldest first."""
    found = []
    for line in _lines(stores):
        with suppress(ValueError, TypeError):  # one that is being written
            known = Known(*json.loads(line))
            if known.id.startswith((name, _PREFIX + name)):
                found.append(known)
    return found


def _path(stores: str) -> str:
    return os.path.join(stores, "terminals")


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _lines(stores: str) -> list[str]:
    try:
        with open(_path(stores), encoding="ascii") as file:
            return file.readlines()
    except FileNotFoundError:
        return []
