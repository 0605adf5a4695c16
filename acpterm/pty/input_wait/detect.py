"""Detect whether a terminal waits for input: whether its program is at a prompt, or merely busy.

A terminal *waits for input* if a thread of its foreground process group is blocked until the
terminal has input. `syscalls` decodes on which descriptors a thread is blocked. This module finds
the threads, and checks whether one of those descriptors is this terminal.

A system call with a timeout does not show the timeout's purpose: `top` redraws when its timeout
expires, while the prompt of Python 3.13 polls for input ten times a second and does nothing else.
Only the time without output distinguishes the two; see `waiting_process`.

A program outside the foreground group is stopped when it reads from the terminal or sets its modes,
and one in the foreground may be stopped by Ctrl-Z; `stopped_program` finds them.

Programs that forward input to another program hide whether that program waits. ssh and script
always appear to wait for input; tmux never does, since its server reads the input.
"""

import contextlib
import errno
import fcntl
import os
import signal
import stat
import struct
import termios
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from acpterm.pty.input_wait import syscalls
from acpterm.pty.input_wait.syscalls import BlockedRead, UndecidedError
from acpterm.pty.linux import name_of, read_once, stat_fields

# The maximum number of processes and threads that one check reads, at 15 to 30 µs each.
_PROCESSES_MAX: Final = 64
_THREADS_MAX: Final = 128
# A call with a timeout of at least this many seconds is treated as waiting for input at once.
# Programs that redraw have shorter timeouts by default: top 3 seconds, htop 1.5. At a prompt, vim
# wakes 4 seconds after a key, node 8 seconds after its start, and `read -t 60` after 60 seconds.
_LONG_TIMEOUT_S: Final = 4.0
# A program that polls for input with a shorter timeout is treated as waiting once it has written
# nothing for this many of its timeouts, and for at least this many seconds.
_SILENT_TIMEOUTS_MIN: Final = 2
_SILENCE_MIN_S: Final = 1.0

# ioctl_tty(2). Python's termios does not have all of them.
_TIOCGSID: Final = 0x5429
_TIOCGPTN: Final = 0x8004_5430
_BACKGROUND_SIGNALS: Final = (signal.SIGTTIN, signal.SIGTTOU)
_DEV_TTY: Final = os.makedev(5, 0)
_GONE: Final = (FileNotFoundError, ProcessLookupError)
# These errors mean that reading was refused; other errors mean that the process has ended.
_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def waiting_process(master: int, quiet: float = 0.0, program: int | None = None) -> int | None:
    """Return the pid of a process that waits for input; 0 if none does; None if unknown.

    It is unknown on machines whose system calls are not in `syscalls`, for most programs that this
    process may not inspect, and beyond 64 processes or 128 threads. One that may not be inspected,
    such as sudo, counts as waiting if it sleeps in line mode without echo, as for a password.
    Raises nothing and never blocks; takes some 100 µs for a prompt, and at most some milliseconds.

    `quiet` is the seconds since the last output: a call with a timeout below 4 seconds counts as
    waiting only after two of its timeouts, and a second, without output. `program` is the
    terminal's program, if it does not lead the session. The processes are found as descendants of
    the foreground group's leader or of the program, so one whose parent has ended is not found.
    """
    if not syscalls.KNOWN:
        return None
    try:
        group, session = _foreground(master)
        if not group:
            return 0
        terminal = _Terminal(master, quiet)
        found = _descendants((group, program or session), session)
        return _first_waiting(found, group, terminal)
    except (OSError, termios.error):
        return None


class StoppedProcess(NamedTuple):
    """A program that was stopped: in the foreground, or when it used the terminal outside of it.

    Outside, `signal` is SIGTTIN (it reads) or SIGTTOU (it sets modes). `leader` is the name of the
    leader of its process group.
    """

    pid: int
    name: str
    signal: signal.Signals
    leader: str


def stopped_program(master: int) -> StoppedProcess | None:
    """Return a stopped program that the foreground group has started, if any. Raises nothing.

    `timeout`, for one, puts its command into the background. None on older kernels, which do not
    show the signal that stopped a process.
    """
    try:
        group, session = _foreground(master)
        if not group:
            return None
        for process in islice(_descendants((group,), session), _PROCESSES_MAX):
            if process.state != b"T":
                continue
            stops = signal.valid_signals() if process.group == group else _BACKGROUND_SIGNALS
            with contextlib.suppress(*_GONE):
                # 0 once the parent was notified of the stop: so the jobs of a shell are left out.
                number = int(stat_fields(f"/proc/{process.pid}/stat")[-1])
                if number in stops:
                    name, leader = (
                        name_of(pid).decode(errors="replace")
                        for pid in (process.pid, process.group)
                    )
                    return StoppedProcess(process.pid, name, signal.Signals(number), leader)
    except (OSError, termios.error):
        pass
    return None


def _foreground(master: int) -> tuple[int, int]:
    """Return a terminal's foreground process group and session; zeros if it has no such group."""
    group = os.tcgetpgrp(master)
    if group <= 0:
        return 0, 0
    (session,) = struct.unpack("i", fcntl.ioctl(master, _TIOCGSID, bytes(4)))
    return group, session


class _Terminal:
    """Identity and modes of a terminal, to check whether processes wait for its input."""

    def __init__(self, master: int, quiet: float) -> None:
        (number,) = struct.unpack("i", fcntl.ioctl(master, _TIOCGPTN, bytes(4)))
        slave = os.stat(f"/dev/pts/{number}")
        self._device = (slave.st_dev, slave.st_ino)
        self._quiet = quiet
        _, _, _, self._local, _, _, self._cc = termios.tcgetattr(master)

    @property
    def asks_secret(self) -> bool:
        """Whether the terminal is in line mode with echo off, as for a password."""
        return bool(self._local & termios.ICANON) and not self._local & termios.ECHO

    def waited_for(self, pid: int, reading: BlockedRead) -> bool:
        timeout = self._read_timeout() if reading.plain else reading.timeout
        return self._is_patient(timeout) and any(self._is_at(pid, fd) for fd in reading.fds)

    def _is_patient(self, timeout: float | None) -> bool:
        return (
            timeout is None
            or timeout >= _LONG_TIMEOUT_S
            or self._quiet >= max(_SILENCE_MIN_S, _SILENT_TIMEOUTS_MIN * timeout)
        )

    def _read_timeout(self) -> float | None:
        """Return the seconds after which read(2) ends without input."""
        if self._local & termios.ICANON or self._cc[termios.VMIN]:
            return None
        return float(self._cc[termios.VTIME] / 10)

    def _is_at(self, pid: int, fd: int) -> bool:
        """Return whether descriptor `fd` of process `pid` is open on this terminal."""
        path = f"/proc/{pid}/fd/{fd}"
        # Check the name first: stat(2) of a file on an unreachable file server would block.
        if not os.readlink(path).startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
            return False
        found = os.stat(path)
        # For a process of the foreground group, /dev/tty is this terminal.
        is_controlling = stat.S_ISCHR(found.st_mode) and found.st_rdev == _DEV_TTY
        # Compare inodes, because a container also numbers its terminals from 0.
        return is_controlling or (found.st_dev, found.st_ino) == self._device


class _Process(NamedTuple):
    pid: int
    group: int
    session: int
    terminal: int
    state: bytes
    threads: int


def _first_waiting(processes: Iterator[_Process], group: int, terminal: _Terminal) -> int | None:
    """Return the first that waits for input; 0 if none does, None if unknown."""
    found = unknown = False
    threads = 0
    for count, process in enumerate(processes):
        if count >= _PROCESSES_MAX:
            return None
        # Skip background processes. But a process without a controlling terminal may read from any
        # terminal, because job control does not apply to it; the command of `su -c` is such a
        # process.
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
                return process.pid
            unknown |= waits is None and is_foreground
        threads += process.threads
        if threads > _THREADS_MAX:
            return None
    # If no process of the group was found, their parents have ended, or `/proc` hides them.
    return 0 if found and not unknown else None


def _waits(process: _Process, tid: int, terminal: _Terminal) -> bool | None:
    """Return whether the thread waits for input of `terminal`; None if unknown."""
    try:
        reading = syscalls.blocked_for(process.pid, tid)
        if reading is None or not terminal.waited_for(process.pid, reading):
            return False
        # A stopped thread shows its call too, but it is in state T.
        return stat_fields(f"/proc/{process.pid}/task/{tid}/stat")[0] == b"S"
    except UndecidedError:
        return None
    except OSError as error:
        if error.errno not in _REFUSED:
            return False
        is_secret = isinstance(error, PermissionError) and terminal.asks_secret
        return True if is_secret and process.terminal and process.state == b"S" else None


def _threads(process: _Process, max_count: int) -> list[int]:
    """Return at most `max_count` thread ids, the main thread first."""
    if process.threads == 1:
        return [process.pid]
    try:
        tids = map(int, os.listdir(f"/proc/{process.pid}/task"))
    except _GONE:
        return []
    return sorted(tids, key=lambda tid: (tid != process.pid, tid))[:max_count]


def _descendants(roots: tuple[int, ...], session: int) -> Iterator[_Process]:
    """Yield `roots` and their descendants that have this session's terminal, or none."""
    # The leader of a pipeline's group may have ended: its other processes are children of the
    # shell, which is the program.
    seen = set()
    for root in roots:
        pending = deque([root])
        while pending:
            pid = pending.popleft()
            process = None if pid in seen else _find(pid)
            # Omit the descendants of a process with another terminal: they have that one too.
            if process is None or (process.session != session and process.terminal):
                continue
            seen.add(pid)
            yield process
            pending.extend(_children(process))


def _children(process: _Process) -> list[int]:
    children: list[int] = []
    for tid in _threads(process, _THREADS_MAX):
        with contextlib.suppress(*_GONE):
            listed = read_once(f"/proc/{process.pid}/task/{tid}/children", 4096)
            # The last number may be cut off. It is beyond the limit of one check anyway.
            children += map(int, listed.rpartition(b" ")[0].split())
    return children


def _find(pid: int) -> _Process | None:
    with contextlib.suppress(*_GONE):
        fields = stat_fields(f"/proc/{pid}/stat")
        return _Process(
            pid=pid,
            group=int(fields[2]),
            session=int(fields[3]),
            terminal=int(fields[4]),
            state=fields[0],
            threads=int(fields[17]),
        )
    return None
