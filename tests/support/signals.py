"""What /proc says of a process's signals."""

import re

# 32 and 33 are the C library's own, which nobody else can set through it: posix_spawn of glibc 2.36
# leaves them ignored in what it starts, and make starts its commands with that.
_INTERNAL = 1 << 31 | 1 << 32


def blocked_or_ignored(status: str) -> int:
    """Give the mask of all that `SigBlk` and `SigIgn` lines of a process's status name."""
    masks = re.findall(r"^Sig(?:Blk|Ign):\t([0-9a-f]{16})$", status, re.MULTILINE)
    assert masks, status
    mask = 0
    for found in masks:
        mask |= int(found, 16)
    return mask & ~_INTERNAL
