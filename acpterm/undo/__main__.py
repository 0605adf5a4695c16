"""`python -m acpterm.undo WORK STORES DIRECTORY …`: work on snapshots in a process of its own.

Prints one line of JSON. The daemon starts it, so that reading a directory takes nothing from its
event loop, and a kill of either leaves the other as it was. The works are:

    keep STORES DIRECTORY                   take a snapshot before a command; prune if need be.
                                            Once something can be read from stdin, or its other
                                            end is closed, the command has begun
    list STORES DIRECTORY
    plan STORES DIRECTORY [BEFORE]          what an undo to before a time, in s since 1970, changes
    restore STORES DIRECTORY TARGET DIGEST  restore what `plan` has shown
"""

import gc
import json
import os
import select
import sys
from collections.abc import Callable
from typing import Any, Final

from acpterm.undo.operation import find_store, listed, planned, restore, shown
from acpterm.undo.scan import UnkeptError, root_of
from acpterm.undo.store import Store

# What takes long makes way for the user's programs and the agent's command.
_NICE: Final = 10


def main(work: str, stores: str, directory: str, *words: str) -> None:
    try:
        if work == "keep":
            _keep(Store(stores, root_of(directory)), *words)
        else:
            _print(_WORKS[work](find_store(stores, directory), *words))
    except (UnkeptError, OSError) as error:
        _print({"error": str(error)})


def _keep(store: Store) -> None:
    if not store.exists:
        os.nice(_NICE)
    with store.locked():
        kept = store.keep("before a command", _has_begun)
        skipped = [os.fsdecode(path) for path in kept.skipped]
        is_before = not kept.snapshot.is_during
        _print({"id": kept.snapshot.id, "is_before": is_before, "skipped": skipped})
        if kept.should_prune:
            os.nice(_NICE)
            store.prune()


def _has_begun() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _plan(store: Store, before: str | None = None) -> dict[str, Any]:
    return shown(store, planned(store, None if before is None else float(before)))


def _restore(store: Store, target: str, digest: str) -> dict[str, Any]:
    changes, failures = restore(store, target, digest)
    return {"directory": store.root, "changes": changes, "failures": failures}


_WORKS: Final[dict[str, Callable[..., dict[str, Any]]]] = {
    "list": listed,
    "plan": _plan,
    "restore": _restore,
}


def _print(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    # It takes a third of the time of a large directory, and finds nothing.
    gc.disable()
    main(*sys.argv[1:])
