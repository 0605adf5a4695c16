"""Whether a terminal waits for input: how a prompt is told from a program that is slow.

It does when a thread of its foreground process group is blocked until there is something to read
from the terminal. `syscalls` says what a thread is blocked for; here is whose threads those are,
and whether what they wait for is this terminal.

What a call with a timeout means, the call does not say: `top` draws anew when it is over, and
Python's prompt, since 3.13, looks for input ten times a second and does nothing else. Only time
tells these two apart, see `waits_for_input`.

Not to be seen from here is what goes on behind a program that passes on what is typed: ssh and
script always wait for input, whatever runs at their other end; tmux, whose server does the
reading, never does.
"""

import contextlib
import errno
import fcntl
import os
import stat
import struct
import termios
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from acpterm.pty.input_wait import syscalls
from acpterm.pty.input_wait.syscalls import BlockedRead, UndecidedError, contents

# The most processes and threads that one look takes in, each at 15 to 30 µs.
_PROCESSES_MAX: Final = 64
_THREADS_MAX: Final = 128
# Seconds of a timeout from which on a wait counts as one for input at once. What redraws itself
# does so more often, unless told otherwise: top every 3 seconds, htop every 1.5. At a prompt, vim
# has something to do 4 seconds after a key, node 8 seconds after its start, and `read -t 60` ends.
_LONG: Final = 4.0
# How many of its timeouts, and at least how many seconds, a program that looks for input again
# and again has to have been silent to count as waiting.
_SILENT_TIMEOUTS: Final = 2
_SILENT: Final = 1.0

# ioctl_tty(2); not all in Python's termios.
_TIOCGSID: Final = 0x5429
_TIOCGPTN: Final = 0x8004_5430
_DEV_TTY: Final = os.makedev(5, 0)
_GONE: Final = (FileNotFoundError, ProcessLookupError)
# What says that a look was refused; other errors say that there is nothing left to look at.
_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def waits_for_input(master: int, quiet: float = 0.0) -> bool | None:
    """Whether the terminal whose master side is the descriptor `master` waits for input now.

    None where that cannot be known: on other systems than Linux, on machines whose system calls
    are not in `syscalls`, for programs that may not be looked at, and where there are more
    processes or threads than one look takes in (64 and 128). Raises nothing, never blocks, and
    takes some 100 µs for a prompt; at most some milliseconds.

    `quiet` is for how many seconds nothing was written or typed. A program that waits with a
    timeout below 4 seconds counts as waiting only after twice that in silence, and at least one
    second: it woke, and had nothing to say.

    The processes of the foreground group are found as descendants of its leader or the session's:
    one whose parent has ended is overlooked.

    A program that may not be looked at, as sudo may not, waits when it sleeps and the terminal
    takes lines and does not echo: that is how passwords are asked for.
    """
    if not syscalls.KNOWN:
        return None
    try:
        group = os.tcgetpgrp(master)
        if group <= 0:
            return False
        terminal = _Terminal(master, quiet)
        (session,) = struct.unpack("i", fcntl.ioctl(master, _TIOCGSID, bytes(4)))
        return _look(_descendants(group, session), group, terminal)
    except (OSError, termios.error):
        return None


class _Terminal:
    """What tells one terminal from others, and a wait for it from another."""

    def __init__(self, master: int, quiet: float) -> None:
        (number,) = struct.unpack("i", fcntl.ioctl(master, _TIOCGPTN, bytes(4)))
        slave = os.stat(f"/dev/pts/{number}")
        self._device = (slave.st_dev, slave.st_ino)
        self._quiet = quiet
        _, _, _, self._local, _, _, self._cc = termios.tcgetattr(master)

    @property
    def asks_secret(self) -> bool:
        """Whether lines are taken and not shown."""
        return bool(self._local & termios.ICANON) and not self._local & termios.ECHO

    def waited_for(self, pid: int, reading: BlockedRead) -> bool:
        """Whether process `pid`, of the foreground group, waits with `reading` for this."""
        timeout = self._read_timeout() if reading.plain else reading.timeout
        return self._is_patient(timeout) and any(self._is_at(pid, fd) for fd in reading.fds)

    def _is_patient(self, timeout: float | None) -> bool:
        return (
            timeout is None
            or timeout >= _LONG
            or self._quiet >= max(_SILENT, _SILENT_TIMEOUTS * timeout)
        )

    def _read_timeout(self) -> float | None:
        """Seconds after which a read without input returns; None for never (termios(3))."""
        if self._local & termios.ICANON or self._cc[termios.VMIN]:
            return None
        return float(self._cc[termios.VTIME] / 10)

    def _is_at(self, pid: int, fd: int) -> bool:
        """Whether that descriptor is the terminal."""
        path = f"/proc/{pid}/fd/{fd}"
        # By name first: the stat of a file on a server that is gone would block.
        if not os.readlink(path).startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
            return False
        found = os.stat(path)
        # Whoever is in the foreground group has this terminal for its controlling one.
        is_controlling = stat.S_ISCHR(found.st_mode) and found.st_rdev == _DEV_TTY
        # By inode, for a container numbers its own terminals from 0 as well.
        return is_controlling or (found.st_dev, found.st_ino) == self._device


class _Process(NamedTuple):
    pid: int
    group: int
    session: int
    terminal: int
    state: bytes
    threads: int


def _look(processes: Iterator[_Process], group: int, terminal: _Terminal) -> bool | None:
    """Whether one of the `group` among the processes waits; None when one could not be seen."""
    found = unknown = False
    threads = 0
    for count, process in enumerate(processes):
        if count >= _PROCESSES_MAX:
            return None
        # One without a controlling terminal may read any, for job control is not for it: what
        # `su -c` runs does.
        is_foreground = process.group == group
        if process.terminal and not is_foreground:
            continue
        found |= is_foreground
        if process.state in b"ZX":
            continue
        left = _THREADS_MAX - threads
        for tid in _threads(process, left):
            waits = _waits(process, tid, terminal)
            if waits:
                return True
            unknown |= waits is None and is_foreground
        threads += process.threads
        if threads > _THREADS_MAX:
            return None
    # Those of the group have nobody in the session for a parent, or may not be seen.
    return False if found and not unknown else None


def _waits(process: _Process, tid: int, terminal: _Terminal) -> bool | None:
    """Whether a thread waits for the terminal; None when it could not be seen."""
    try:
        reading = syscalls.blocked_for(process.pid, tid)
        if reading is None or not terminal.waited_for(process.pid, reading):
            return False
        # A stopped thread shows the call that it was in, too.
        return _read_process(f"/proc/{process.pid}/task/{tid}/stat").state == b"S"
    except UndecidedError:
        return None
    except OSError as error:
        if error.errno not in _REFUSED:
            return False
        is_secret = isinstance(error, PermissionError) and terminal.asks_secret
        return True if is_secret and process.terminal and process.state == b"S" else None


def _threads(process: _Process, most: int) -> list[int]:
    """Give the threads of a process, the main one first: as a rule it is the one that reads."""
    if process.threads == 1:
        return [process.pid]
    try:
        tids = map(int, os.listdir(f"/proc/{process.pid}/task"))
    except FileNotFoundError:
        return []
    return sorted(tids, key=lambda tid: (tid != process.pid, tid))[:most]


def _descendants(group: int, session: int) -> Iterator[_Process]:
    """Give the processes below the group's leader, then those below the session's.

    The leader of a pipeline may have ended before the rest, whose parent is a shell.
    """
    seen = set()
    for root in (group, session):
        left = deque([root])
        while left:
            pid = left.popleft()
            process = None if pid in seen else _find(pid)
            # Below one that has got itself another terminal, nobody has this one.
            if process is None or (process.session != session and process.terminal):
                continue
            seen.add(pid)
            yield process
            left.extend(_children(process))


def _children(process: _Process) -> list[int]:
    children: list[int] = []
    for tid in _threads(process, _THREADS_MAX):
        with contextlib.suppress(*_GONE):
            listed = contents(f"/proc/{process.pid}/task/{tid}/children", 4096)
            # The last may be cut in two, and is beyond what is looked at anyway.
            children += map(int, listed.rpartition(b" ")[0].split())
    return children


def _find(pid: int) -> _Process | None:
    with contextlib.suppress(*_GONE):
        return _read_process(f"/proc/{pid}/stat")
    return None


def _read_process(path: str) -> _Process:
    line = contents(path, 4096)
    # The name, in brackets, may itself hold brackets and spaces.
    fields = line[line.rindex(b")") + 2 :].split(maxsplit=18)
    return _Process(
        pid=int(line[: line.index(b" ")]),
        group=int(fields[2]),
        session=int(fields[3]),
        terminal=int(fields[4]),
        state=fields[0],
        threads=int(fields[17]),
    )
