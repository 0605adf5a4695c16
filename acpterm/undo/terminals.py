"""The terminals whose commands have a way back: the daemon forgets those that are released.

Each is a link in the store of its directory, which is there or not: it leads to the time at which
the command began.
"""

import os
from contextlib import suppress
from typing import Final, NamedTuple

from acpterm.undo.store import Store

_MAX: Final = 1000
_PREFIX: Final = "term_"


class Known(NamedTuple):
    id: str
    time: float
    """When the command began, in seconds since 1970."""
    root: str


def note(store: Store, name: str, began: float) -> None:
    """Add a terminal to a store that exists. Raises `OSError`."""
    if not store.exists:
        return
    directory = _directory(store.directory)
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    os.symlink(repr(began), os.path.join(directory, name))
    if len(os.listdir(directory)) > _MAX:
        for known in sorted(_of(store.directory, _PREFIX), key=lambda one: one.time)[: _MAX // 2]:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(directory, known.id))


def find(stores: str, name: str) -> list[Known]:
    """Return the terminals whose id begins with `name`, the oldest first."""
    prefix = name if name.startswith(_PREFIX) else _PREFIX + name
    if prefix == _PREFIX:
        return []
    try:
        names = os.listdir(stores)
    except FileNotFoundError:
        return []
    found = [known for one in names for known in _of(os.path.join(stores, one), prefix)]
    return sorted(found, key=lambda one: one.time)


def _of(store: str, prefix: str) -> list[Known]:
    found: list[Known] = []
    with suppress(OSError), open(os.path.join(store, "root"), "rb") as file:
        root = os.fsdecode(file.read())
        directory = _directory(store)
        for name in os.listdir(directory):
            # What is no link, or has been removed meanwhile, is passed over.
            with suppress(OSError, ValueError):
                if name.startswith(prefix):
                    time = float(os.readlink(os.path.join(directory, name)))
                    found.append(Known(name, time, root))
    return found


def _directory(store: str) -> str:
    return os.path.join(store, "terminals")
