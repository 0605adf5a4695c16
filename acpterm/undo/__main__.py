"""`python -m acpterm.undo STORES DIRECTORY WHY`: take a snapshot in a process of its own.

Prints one line of JSON, then prunes if need be. The daemon starts it, so that reading a directory
takes nothing from its event loop, and a kill of either leaves the other as it was.
"""

import gc
import json
import sys

from acpterm.undo.scan import UnkeptError, root_of
from acpterm.undo.store import Store


def main(stores: str, directory: str, why: str) -> None:
    try:
        store = Store(stores, root_of(directory))
        with store.locked():
            kept = store.keep(why)
            print(json.dumps({"id": kept.snapshot.id}), flush=True)
            if kept.should_prune:
                store.prune()
    except (UnkeptError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)


if __name__ == "__main__":
    # It takes a third of the time of a large directory, and finds nothing.
    gc.disable()
    main(*sys.argv[1:4])
