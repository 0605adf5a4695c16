"""A way back: snapshots of a directory, kept in a git repository of our own beside it.

A *store* belongs to one directory, the *root*. It has:

    lock        held (flock) by the process that takes a snapshot, restores or prunes; dies with it
    git/        a bare repository; each ref refs/undo/TIME, in ms since 1970, is one snapshot
    linked/     the objects of the user's repositories, by name: copies, or links to large ones
    cache       the newest snapshot's tree, and the facts of stat(2) of each of its files

    no snapshot ──scan, git fast-import──▶ objects ──one new ref──▶ kept ──prune──▶ gone

git never reads the root: `scan` reads the files itself, so that no configuration, attribute,
filter or hook of the user's repository applies, and a `.git` is a directory like others. A process
that is killed before the ref is written leaves objects that `prune` removes. One that is killed
while it restores has kept the state from before: the same restore, or the one back, completes.
"""
