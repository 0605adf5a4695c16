"""Controllers of the control groups of terminals: enables the ones that limits need.

A controller, such as `memory` or `cpu`, applies to a group only if all ancestors of the group pass
it on (`cgroup.subtree_control`):

    OWN ──passes it on──▶ acpterm-PID-RANDOM ──passes it on──▶ TERMINAL

A group that has processes of its own cannot pass controllers on, unless it is the root of the
hierarchy. So when a limit needs a controller for the first time, the processes of the daemon are
moved from OWN to the group `DAEMON_GROUP` below OWN. If systemd's unit of the daemon has the option
`DelegateSubgroup=`, systemd has already started them there. If OWN has other processes, such as the
user's shell, nothing is moved, and the controller is not available.

If the keeper is killed and programs outlive it, systemd starts the service again in OWN. With
systemd before version 254, which has no `DelegateSubgroup=`, the start fails if OWN passes a
controller on. So a worker that loses its keeper calls `disable`. The next worker enables the
controllers and sets the limits again.
"""

import contextlib
import os
from collections.abc import Collection
from typing import Final

from acpterm.pty import linux

DAEMON_GROUP: Final = "acpterm-daemon"  # where the daemon's own processes move
_MOVE_ROUNDS_MAX: Final = 10


def enable(controller: str, base: str, own_pids: Collection[int]) -> str | None:
    """Enable a controller for the groups in `base`; return None, or why that is impossible."""
    # The daemon's processes (`own_pids`) and their children may be moved to another group.
    try:
        if controller in _words(f"{base}/cgroup.subtree_control"):
            return None
        own = os.path.dirname(base)
        available = _words(f"{own}/cgroup.controllers")
        if controller not in available:
            return (
                "the controller of control groups that it needs is not delegated to acpterm: "
                f"{own}/cgroup.controllers has {' '.join(available) or 'none'}"
            )
        if controller not in _words(f"{own}/cgroup.subtree_control"):
            # Move the processes in any case: the kernel would let a group with processes pass on a
            # controller of threads, such as `pids`, but then no process could enter the groups
            # below.
            if not _is_root(own) and (reason := _move_processes(own, own_pids)):
                return reason
            _pass_on(own, controller)
        _pass_on(base, controller)
    except OSError as error:
        return f"the controller {controller!r} of control groups cannot be enabled: {error}"
    return None


def disable(base: str) -> None:
    """Disable all controllers for the groups in `base`, which removes their limits; ignore errors.

    Then processes can be started in the parent group. The root of the hierarchy can always have
    some.
    """
    own = os.path.dirname(base)
    if _is_root(own):
        return
    for directory in (base, own):
        # Another daemon below the same group may need a controller.
        with contextlib.suppress(OSError):
            for controller in _words(f"{directory}/cgroup.subtree_control"):
                _write(f"{directory}/cgroup.subtree_control", f"-{controller}")


def _is_root(directory: str) -> bool:
    """Return whether the group is the root of the hierarchy of control groups."""
    return not os.path.exists(f"{directory}/cgroup.events")


def _pass_on(directory: str, controller: str) -> None:
    _write(f"{directory}/cgroup.subtree_control", f"+{controller}")


def _move_processes(own: str, own_pids: Collection[int]) -> str | None:
    """Move the daemon's processes out of the group `own`; return None, or why this failed."""
    group = os.path.join(own, DAEMON_GROUP)
    # Repeat: before a process is moved, it may start another one in `own`.
    for _ in range(_MOVE_ROUNDS_MAX):
        pids = [int(word) for word in _words(f"{own}/cgroup.procs")]
        if not pids:
            return None
        strangers = [pid for pid in pids if pid not in own_pids and _parent(pid) not in own_pids]
        if strangers:
            return (
                f"acpterm's control group {own} also has processes of others (such as "
                f"{strangers[0]}): run the daemon in a group of its own, such as a systemd service "
                "with Delegate=yes"
            )
        os.makedirs(group, exist_ok=True)
        for pid in pids:
            try:
                _write(f"{group}/cgroup.procs", str(pid))
            except ProcessLookupError:
                continue  # it has just ended
    return (
        f"processes start in acpterm's control group {own} faster than they can be moved away: "
        "try again later"
    )


def _parent(pid: int) -> int | None:
    stat = linux.read_stat(pid)
    return None if stat is None else stat.ppid


def _words(path: str) -> list[str]:
    with open(path) as file:
        return file.read().split()


def _write(path: str, text: str) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(text.encode())
