"""Connects to the daemon with blocking sockets, and starts the daemon if it is not running.

There is one daemon per user, as with tmux. The first command that needs the daemon starts it
(`daemon_process`). Two commands may start a daemon at the same time: the second daemon finds the
lock of the first and exits, and both commands connect to the first.
"""

import contextlib
import functools
import os
import socket
import stat
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from acpterm.config import Settings, agent_socket, default_dirs, default_socket, user_socket
from acpterm.link.errors import AcptermError
from acpterm.runtime.blocking_io import write_fully
from acpterm.runtime.unix_socket import peer_of

if TYPE_CHECKING:
    from acpterm.link.daemon_process import DaemonProcess

PATH_BYTES_MAX: Final = 107
"""Maximum length of a socket's path, in bytes (unix(7))."""
# Seconds in which a started daemon must begin to listen. One that fails ends before, so this only
# ends a hang: on a busy machine the start takes more than ten.
START_TIMEOUT_S: Final = 30.0
# Seconds between two attempts to connect.
_POLL_S: Final = 0.02
# Seconds to wait for a daemon that another command has started, after ours has ended.
_OTHER_STARTER_TIMEOUT_S: Final = 1.0
# Seconds in which a running daemon notices that its socket file was removed, and binds a new one.
_REBIND_TIMEOUT_S: Final = 3.0
# Part of error messages: the alternative to a daemon. Only commands for agents have this option.
_EMBEDDED: Final = ", or use --embedded, which needs none"
_LOCK_BYTES_MAX: Final = 4096


class DaemonError(AcptermError):
    """The daemon cannot be started or used; the message says why."""


class SocketPathError(DaemonError):
    """A configured path is too long for a socket, or a file that is no socket has this path."""


class NotRunningError(DaemonError):
    """No daemon is running, and the caller has not asked to start one."""


class NoAnswerError(DaemonError):
    """The host has not responded to `initialize` in time, or its queue of connections is full.

    This happens, for example, if the daemon has no worker.
    """


def connect(
    settings: Settings,
    config: str | None = None,
    *,
    user: bool = False,
    start_timeout_s: float = START_TIMEOUT_S,
) -> socket.socket:
    """Connect to the daemon, and start it if it is not running; return a blocking socket.

    Connects to the agents' socket, or to the user's socket if `user` is true. A daemon that is
    started reads the settings file `config`, if given. Call this before this process becomes a
    subreaper (`Trees`): otherwise the new daemon would become a child of this process.

    Raises `DaemonError` if the daemon cannot be started, does not listen within `start_timeout_s`,
    or belongs to another user; `NoAnswerError` if its queue of connections is full for as long.
    """
    path = user_socket(settings) if user else agent_socket(settings)
    deadline = time.monotonic() + start_timeout_s
    if sock := _open_existing(path, deadline):
        return sock
    _check_paths(settings, "" if user else _EMBEDDED)
    # If a service manager listens at the agents' socket, this connection makes it start the daemon,
    # which then listens at the user's socket too. Keep it until we are connected there.
    agents = _open_existing(agent_socket(settings), deadline) if user else None
    with agents or contextlib.nullcontext():
        return _start_and_connect(settings, config, path, deadline, start=agents is None)


def _start_and_connect(
    settings: Settings, config: str | None, path: str, deadline: float, *, start: bool
) -> socket.socket:
    """Connect to `path` once a daemon listens there; `start` one unless a service manager does."""
    # This is slow to import, and most commands find a running daemon.
    from acpterm.link.daemon_process import ALREADY_LISTENS  # noqa: PLC0415

    why, output = "it takes no connections", "it was woken by a connection of ours"
    process = _start(settings, config) if start else None
    while time.monotonic() < deadline:
        try:
            return open_socket(path)
        except OSError as error:
            why = error.strerror or str(error)
        if process is not None and not process.is_alive():
            if sock := _open_within(_OTHER_STARTER_TIMEOUT_S, path, deadline):
                return sock
            if ALREADY_LISTENS not in process.output():
                break
            # Another daemon has the lock. Either it is about to end, or its socket file was removed
            # and it will bind a new one.
            if sock := _wait_for_lock_holder(settings, path, deadline):
                return sock
            if time.monotonic() >= deadline:
                break
            process = _start(settings, config)
        time.sleep(_POLL_S)
    if process is not None:
        output = process.output()
    if ALREADY_LISTENS in output and (pid := read_lock(settings).pid) is not None:
        raise DaemonError(
            f"{_held(path, pid)}: wait a minute, and if it still does not, end it with kill {pid}; "
            "or use --embedded, where there is such a flag"
        )
    raise DaemonError(
        f"the daemon for {path} does not answer ({why}): {output}; run acpterm serve to see why, "
        "or use --embedded, where there is such a flag"
    )


def _start(settings: Settings, config: str | None) -> "DaemonProcess":
    from acpterm.link.daemon_process import StartError, start  # noqa: PLC0415  as above

    try:
        return start(settings, config, log_file(settings))
    except StartError as error:
        raise DaemonError(str(error)) from error


def _open_existing(path: str, deadline: float) -> socket.socket | None:
    """Connect to the socket at `path`; return None if no process listens there."""
    while True:
        try:
            return open_socket(path)
        except BlockingIOError as error:
            # The queue of connections is full: another daemon could not start either.
            if time.monotonic() >= deadline:
                why = error.strerror
                raise NoAnswerError(f"the daemon at {path} does not answer: {why}") from error
        except OSError:
            return None
        time.sleep(_POLL_S)


def _open_within(seconds: float, path: str, deadline: float) -> socket.socket | None:
    until = min(deadline, time.monotonic() + seconds)
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            return open_socket(path)
        time.sleep(_POLL_S)
    return None


def open_socket(path: str) -> socket.socket:
    """Connect to the Unix socket at `path` without waiting; return a blocking socket.

    Raises `OSError` if no process listens there, its subclass `BlockingIOError` if the listener's
    queue of connections is full, and `DaemonError` if the listener belongs to another user.
    """
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        try:
            sock.connect(path)
        except BlockingIOError as error:
            full = "its queue of connections is full"
            raise BlockingIOError(error.errno, full, path) from error
        sock.setblocking(True)
        _check_owner(sock, path)
    except BaseException:
        sock.close()
        raise
    return sock


def _check_owner(sock: socket.socket, path: str) -> None:
    # Clients send their environment, and in a directory such as /tmp, anyone can listen.
    uid = peer_of(sock).uid
    if uid not in (os.geteuid(), 0):
        raise DaemonError(
            f"the daemon at {path} is another user's (uid {uid}): choose another --socket, or "
            "use --embedded, which needs none"
        )


def connect_running(settings: Settings) -> socket.socket | None:
    """Connect to the user's socket of a running daemon; return None if no daemon is running.

    Raises `NoAnswerError` if the daemon's queue of connections is full, `SocketPathError` if no
    daemon can listen at the configured paths, and `DaemonError` if the daemon is another user's.
    """
    sock = _open_existing(user_socket(settings), deadline=0.0)
    if sock is None:
        _check_paths(settings)
    return sock


@functools.cache
def note_other_daemon(socket: str | None) -> None:
    """Print a note on stderr if this user has a second daemon, unless `socket` chooses one."""
    used = os.path.dirname(default_socket())
    for directory in default_dirs():
        path = os.path.join(directory, "agent.sock")
        if socket is not None or directory == used:
            continue
        with contextlib.suppress(OSError, DaemonError):
            open_socket(path).close()
            line = f"acpterm: another daemon of yours, with other terminals: --socket {path}\n"
            write_fully(2, line.encode())


class Lock(NamedTuple):
    """The content of `SOCKET.lock`, a file beside the agents' socket that prevents a second daemon.

    The daemon holds a lock on the file as long as the daemon runs.
    """

    pid: int | None = None
    """The keeper's process id; None if it cannot be read."""
    message: str | None = None
    """Why there is no worker, and what to do about it; None while there is a worker."""


def read_lock(settings: Settings) -> Lock:
    """Read the lock file of the agents' socket, if it can be read."""
    try:
        with open(f"{agent_socket(settings)}.lock", errors="replace") as file:
            lines = file.read(_LOCK_BYTES_MAX).splitlines()
    except OSError:
        return Lock()
    pid = int(lines[0]) if lines and lines[0].isascii() and lines[0].isdigit() else None
    return Lock(pid, " ".join(lines[1:]).strip() or None)


def signal_keeper(settings: Settings, number: int) -> int:
    """Signal the keeper of a daemon whose worker does not answer; return the keeper's pid.

    Raises `DaemonError` if the keeper is not known or cannot be signalled.
    """
    path = agent_socket(settings)
    pid = read_lock(settings).pid
    if pid is None:
        raise DaemonError(
            f"no worker of the daemon at {path} answers, and {path}.lock does not say which "
            "process keeps its terminals: end that by its pid"
        )
    try:
        os.kill(pid, number)
    except OSError as error:
        raise DaemonError(
            f"no worker of the daemon at {path} answers, and its keeper (pid {pid}) cannot be "
            f"signalled: {error.strerror}"
        ) from error
    return pid


def _check_paths(settings: Settings, alternative: str = "") -> None:
    """Raise `SocketPathError` if a socket cannot be created at its path."""
    for path in (agent_socket(settings), user_socket(settings)):
        if (size := len(os.fsencode(path))) > PATH_BYTES_MAX:
            raise SocketPathError(
                f"{path} has {size} bytes, and a socket's path at most {PATH_BYTES_MAX}: "
                f"choose a shorter one with --socket{alternative}"
            )
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise SocketPathError(
                    f"{path} is there and is no socket: remove it, or choose another --socket"
                    f"{alternative}"
                )


def log_file(settings: Settings) -> str:
    """Return the path of the log file of a daemon that was started by a command."""
    return f"{agent_socket(settings)}.log"


def _wait_for_lock_holder(settings: Settings, path: str, deadline: float) -> socket.socket | None:
    """Connect to the daemon that holds the lock; return None if it does not listen in time."""
    pid = read_lock(settings).pid
    if pid is not None and not os.path.lexists(path):
        with contextlib.suppress(OSError):
            write_fully(2, f"acpterm: {_held(path, pid)}: waiting for it\n".encode())
    return _open_within(_REBIND_TIMEOUT_S, path, deadline)


def _held(path: str, pid: int) -> str:
    return f"process {pid} holds the lock {path}.lock, and does not listen at {path}"
