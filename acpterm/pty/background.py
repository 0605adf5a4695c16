"""What a terminal's command has left running: its *background*, with listening TCP ports.

A shell at its prompt has a background, too: what runs beside it.

Command lines and ports come from `/proc`; on other systems ports are not known.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from acpterm.pty import linux, processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking.tree import collect

LISTED_MAX: Final = 16
COMMAND_CHARS_MAX: Final = 80
# Of larger trees, only this many processes are described: 20 to 100 µs each.
_EXAMINED_MAX: Final = 128
_FDS_MAX: Final = 1024
_PORTS_MAX: Final = 16
_LISTENING: Final = "0A"
# Programs that run the script in their first argument: the script's name says more.
_INTERPRETERS: Final = ("python", "node", "ruby", "perl", "bash", "dash", "zsh", "php")

# The ports of one network namespace, by the inode of their socket.
Ports = dict[int, int]


class RunningProcess(NamedTuple):
    """A process that runs on after the command of its terminal has exited."""

    pid: int
    command: str  # shortened for display
    ports: tuple[int, ...]  # TCP, listening, ascending


class Background(NamedTuple):
    """The processes that a command has left running; those with ports come first."""

    processes: tuple[RunningProcess, ...] = ()  # at most `LISTED_MAX`
    omitted: int = 0

    @property
    def number(self) -> int:
        return len(self.processes) + self.omitted


NO_BACKGROUND: Final = Background()


def beside(members: list[ProcStat], group: int) -> list[ProcStat]:
    """Return the members that are not in the process group `group`, nor ancestors of it."""
    parents = {each.pid: each.ppid for each in members}
    excluded = set()
    for each in members:
        pid = each.pid
        with suppress(ProcessLookupError):
            if os.getpgid(pid) == group:
                while pid in parents and pid not in excluded:
                    excluded.add(pid)
                    pid = parents[pid]
    return [each for each in members if each.pid not in excluded]


async def describe(members: list[ProcStat]) -> Background | None:
    """Describe running processes; None if all are just ending. Raises `OSError`."""
    if not members:
        return NO_BACKGROUND
    if linux.AVAILABLE:
        # Such as process 1 of a sandbox whose program has exited: it waits for the kernel.
        members = [each for each in members if not linux.is_exiting(each.pid)]
        if not members:
            return None
    namespaces: dict[str, Ports] = {}
    found = await collect(_describe(each.pid, namespaces) for each in members[:_EXAMINED_MAX])
    # A shell that only waits for its child is older than the child.
    found.sort(key=lambda each: (not each.ports, -each.pid))
    return Background(tuple(found[:LISTED_MAX]), max(0, len(members) - LISTED_MAX))


def _describe(pid: int, namespaces: dict[str, Ports]) -> RunningProcess:
    ports = _ports_of(pid, namespaces) if linux.AVAILABLE else ()
    # There are no arguments while a program is being executed.
    argv = processes.arguments_of(pid) or [linux.name_of(pid)]
    return RunningProcess(pid, display(argv), ports)


def display(argv: list[bytes]) -> str:
    """Return a command line in short: `vite --port 5173` for `node /…/vite --port 5173`."""
    words = [word.decode(errors="replace") for word in argv]
    words[:1] = [os.path.basename(word) for word in words[:1]]
    is_script = len(words) > 1 and words[1][:1] not in ("", "-")
    if is_script and words[0].rstrip("0123456789.") in _INTERPRETERS:
        words = [os.path.basename(words[1]), *words[2:]]
    text = " ".join(" ".join(words).split()) or "?"
    return text if len(text) <= COMMAND_CHARS_MAX else f"{text[: COMMAND_CHARS_MAX - 1]}…"


def _ports_of(pid: int, namespaces: dict[str, Ports]) -> tuple[int, ...]:
    try:
        # First, since the kernel takes milliseconds to list the sockets of a namespace.
        if not (sockets := set(_sockets_of(pid))):
            return ()
        namespace = os.readlink(f"/proc/{pid}/ns/net")
        if namespace not in namespaces:
            namespaces[namespace] = dict(_listening(pid))
        ports = namespaces[namespace]
        return tuple(sorted({ports[one] for one in sockets & ports.keys()})[:_PORTS_MAX])
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ()  # it has ended, or belongs to another user


def _listening(pid: int) -> Iterator[tuple[int, int]]:
    """Yield inode and port of the listening TCP sockets near `pid` (proc_pid_net(5))."""
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError), open(f"/proc/{pid}/net/{name}") as file:
            next(file, None)
            for line in file:
                fields = line.split()
                # Listening sockets come first; there may be many thousand others.
                if fields[3] != _LISTENING:
                    break
                yield int(fields[9]), int(fields[1].rpartition(":")[2], 16)


def _sockets_of(pid: int) -> Iterable[int]:
    directory = f"/proc/{pid}/fd"
    for fd in os.listdir(directory)[:_FDS_MAX]:
        with suppress(FileNotFoundError):
            target = os.readlink(f"{directory}/{fd}")
            if target.startswith("socket:["):
                yield int(target[8:-1])
