"""Signal masks of processes, as /proc reports them."""

import re

# Signals 32 and 33 are internal to the C library, which does not let programs set them. posix_spawn
# of glibc 2.36, which make uses, leaves them ignored in the processes that it starts.
_INTERNAL = 1 << 31 | 1 << 32


def blocked_or_ignored(status: str) -> int:
    """Return the mask of the signals that a /proc/PID/status reports as blocked or ignored."""
    masks = re.findall(r"^Sig(?:Blk|Ign):\t([0-9a-f]{16})$", status, re.MULTILINE)
    assert masks, status
    mask = 0
    for digits in masks:
        mask |= int(digits, 16)
    return mask & ~_INTERNAL
