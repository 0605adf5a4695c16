"""Sets the limits of one terminal's control group, and finds out which limit has ended a program.

The files are those of version 2 (Documentation/admin-guide/cgroup-v2.rst of Linux). A limit works
only if its controller is enabled for the group, which `controllers.enable` does.

- `memory`: `memory.max`. The group gets no swap space (`memory.swap.max`). At the limit the kernel
  kills all processes of the group at once (`memory.oom.group`), so no program continues with some
  of its processes missing.
- `cpu`: `cpu.max`. The group is paused when its share of a period is used up.
- `processes`: `pids.max`. At the limit, a fork fails; no process is killed.
- `disk_io`: `io.max` of each block device. The kernel attributes delayed writes to the group only
  if the memory controller is enabled too, and only on ext4, btrfs, xfs and f2fs. Devices that are
  added later, and file systems without a block device of their own (tmpfs, NFS), are not limited.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Final

from acpterm.pty.limits import CONTROLLERS, Cause, LimitError, ResourceLimits, is_file_size_exceeded

_CPU_PERIOD_US: Final = 100_000
# The kernel refuses a smaller quota.
_CPU_QUOTA_MIN_US: Final = 1_000
_BLOCK_DEVICES: Final = "/sys/block"
_SWAPS: Final = "/proc/swaps"
_NO_GROUPS: Final = (
    "it needs a control group of version 2, and acpterm may create none; run the daemon where they "
    "are delegated to it, such as a systemd service with Delegate=yes"
)


class Enforcement:
    """The limits enforced on one terminal, and an error for each that cannot be."""

    def __init__(
        self,
        limits: ResourceLimits,
        directory: str | None = None,
        unenforced: tuple[LimitError, ...] = (),
    ) -> None:
        self.limits: Final = limits
        self.unenforced: Final = unenforced
        self._directory: Final = directory

    def cause(self, code: int | None, signal_name: str | None) -> Cause | None:
        """Return the limit that ended the program, before its group is removed."""
        was_killed = signal_name == "SIGKILL" or code == 137
        if "memory" in self.limits and was_killed and self._out_of_memory():
            return Cause("memory", self.limits["memory"])
        if "file_size" in self.limits and is_file_size_exceeded(code, signal_name):
            return Cause("file_size", self.limits["file_size"])
        return None

    def _out_of_memory(self) -> bool:
        """Return whether the kernel has killed a process of the group for lack of memory."""
        with contextlib.suppress(OSError, ValueError):
            with open(f"{self._directory}/memory.events") as events:
                counts = dict(line.split() for line in events)
            return int(counts.get("oom_kill", 0)) > 0
        return False


def enforce(
    limits: ResourceLimits, directory: str | None, enable: Callable[[str], str | None]
) -> Enforcement:
    """Set the limits of the control group `directory`, if any; return which ones are enforced."""
    # `enable` enables a controller, or returns the reason why it cannot.
    enforced, failed = dict(limits), []
    for name, value in limits.items():
        if name not in CONTROLLERS:
            continue
        reason = _NO_GROUPS if directory is None else None
        for controller in CONTROLLERS[name]:
            reason = reason or enable(controller)
        if reason is None and directory is not None:
            reason = _set(directory, name, value)
        if reason is not None:
            failed.append(LimitError(name, value, reason))
            del enforced[name]
    return Enforcement(enforced, directory, tuple(failed))


def _set(directory: str, name: str, value: float) -> str | None:
    """Set a limit of a control group; return None, or why it cannot be set."""
    try:
        if name == "memory":
            return _set_memory(directory, int(value))
        if name == "cpu":
            quota = max(_CPU_QUOTA_MIN_US, round(value * _CPU_PERIOD_US))
            _write(f"{directory}/cpu.max", f"{quota} {_CPU_PERIOD_US}")
        elif name == "processes":
            _write(f"{directory}/pids.max", str(int(value)))
        else:
            return _set_disk_io(directory, int(value))
    except OSError as error:
        return f"the control group refuses it: {error.strerror}"
    return None


def _set_memory(directory: str, value: int) -> str | None:
    _write(f"{directory}/memory.max", str(value))
    with contextlib.suppress(FileNotFoundError):  # before Linux 4.19
        _write(f"{directory}/memory.oom.group", "1")
    try:
        _write(f"{directory}/memory.swap.max", "0")
    except FileNotFoundError:
        if _has_swap():
            return "the kernel does not count swap space (swapaccount=0), and there is some"
    return None


def _set_disk_io(directory: str, value: int) -> str | None:
    devices = _block_devices()
    if not devices:
        return f"there is no block device in {_BLOCK_DEVICES}"
    for device in devices:
        try:
            _write(f"{directory}/io.max", f"{device} rbps={value} wbps={value}")
        except OSError as error:
            return f"the device {device} cannot be limited: {error.strerror}"
    return None


def _block_devices() -> list[str]:
    """Return MAJOR:MINOR of the system's block devices, without partitions."""
    found = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(_BLOCK_DEVICES)):
            # A device may be removed at any time.
            with contextlib.suppress(OSError), open(f"{_BLOCK_DEVICES}/{name}/dev") as file:
                found.append(file.read().strip())
    return found


def _has_swap() -> bool:
    with contextlib.suppress(OSError), open(_SWAPS) as swaps:
        return len(swaps.readlines()) > 1
    return False


def _write(path: str, text: str) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(text.encode())
