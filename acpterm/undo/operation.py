"""What `acpterm undo` and the user's methods do: find a store, show what would change, restore."""

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from os.path import dirname
from typing import Any, Final

from acpterm.undo.restore import Plan, apply, plan
from acpterm.undo.scan import UnkeptError, root_of
from acpterm.undo.store import Snapshot, Store

SHOWN_MAX: Final = 10
_CHANGES_MAX: Final = 1000
# Every repository has it.
_EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_BEFORE_UNDO: Final = "before an undo"


def find_store(stores: str, directory: str) -> Store:
    """Return the store of a directory, or of the one around it that was removed with its `.git`."""
    found = store = Store(stores, root_of(directory))
    # What was a repository, or a worktree, inside of another one is not that one.
    place = os.path.realpath(directory)
    while len(place) > len(found.root):
        inner = Store(stores, place)
        if inner.having("files/%.git", inner.snapshots()):
            return inner
        place = dirname(place)
    if os.path.lexists(os.path.join(store.root, ".git")):
        return store
    with suppress(UnkeptError):  # a directory around it is too general
        while not store.exists and store.root != dirname(store.root):
            store = Store(stores, dirname(store.root))
    return store if store.exists else found


def planned(store: Store, before: float | None) -> Plan:
    """Keep the directory; return what an undo to before a time, or to the last state, changes."""
    # A directory that has no way back is not kept.
    _target(store, None, before)
    with store.locked():
        kept = store.keep(_BEFORE_UNDO)
        return plan(store, kept, _target(store, kept.snapshot, before))


def _target(store: Store, now: Snapshot | None, before: float | None) -> Snapshot:
    snapshots = store.snapshots()
    since = ""
    if before is not None:
        # One that was taken during a command is restored by its very number.
        found = [one for one in snapshots if one.time <= before and not one.is_during]
        found += [one for one in snapshots if one.time == before and one.is_during]
    else:
        found = [one for one in snapshots if one != now and not one.is_during]
    if snapshots:
        one = snapshots[0]
        since = f"; the oldest is {moment(one)}{', during a command' if one.is_during else ''}"
    if not found:
        raise UnkeptError(
            f"there is no earlier snapshot of {store.root}{since}: acpterm undo --list"
        )
    return found[-1]


def restore(store: Store, target: str, digest: str) -> tuple[int, list[str]]:
    """Restore what was shown; return the number of changes, and what could not be restored.

    Raises `UnkeptError` if that is not due.
    """
    # Not locked while it waited for the user: agents' commands continue.
    with store.locked():
        found = [one for one in store.snapshots() if one.id == target]
        if not found:
            raise UnkeptError(f"there is no snapshot {target} of {store.root}")
        again = plan(store, store.keep(_BEFORE_UNDO), found[0])
        if digest_of(again) != digest:
            raise UnkeptError(
                f"{store.root} has changed meanwhile: nothing was restored; look again"
            )
        return len(again.changes), apply(store, again)


def digest_of(found: Plan) -> str:
    """Return what tells whether a later plan changes the same."""
    return hashlib.sha256(repr((found.changes, found.note)).encode()).hexdigest()


def diff(store: Store, found: Plan, *, patch: bool) -> str:
    """Return the difference of the files, as text of git."""
    form = ("--patch",) if patch else ("--stat=78", f"--stat-count={SHOWN_MAX}", "--no-color")
    options = ("--no-ext-diff", "--no-textconv", "--no-renames", *form)
    listed = [store.git("ls-tree", one.ref, "files").split() for one in (found.now, found.target)]
    trees = [fields[2].decode() if fields else _EMPTY_TREE for fields in listed]
    raw = store.git("diff", *options, *trees, "--", ".", ":(exclude,glob)**/%.git/**")
    return raw.decode(errors="backslashreplace").rstrip("\n")


def listed(store: Store) -> dict[str, Any]:
    """Return the snapshots, the oldest first, as JSON."""
    rows = [{"id": one.id, "time": one.time, "why": one.why} for one in store.snapshots()]
    return {"directory": store.root, "snapshots": rows}


def shown(store: Store, found: Plan) -> dict[str, Any]:
    """Return a plan as JSON, with the first changes."""
    changes = found.changes
    return {
        "directory": store.root,
        "to": found.target.id,
        "why": found.target.why,
        "changes": [{"path": named(one.path), "what": one.what} for one in changes[:_CHANGES_MAX]],
        "omitted": len(changes[_CHANGES_MAX:]),
        "diffstat": diff(store, found, patch=False),
        "note": found.note,
        "digest": digest_of(found),
    }


def below(root: str, directories: Mapping[str, str], resolve: Callable[[str], str]) -> list[str]:
    """Return the names of the directories that are `root` or below it."""
    inside = os.path.join(root, "")
    return [
        name
        for name, directory in directories.items()
        if os.path.join(resolve(directory), "").startswith(inside)
    ]


def named(path: bytes) -> str:
    return path.decode(errors="backslashreplace") or "."


def moment(snapshot: Snapshot) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.time))
