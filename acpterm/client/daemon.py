"""The daemon, as its clients find it: where it listens, and how it is started when it does not.

As with tmux there is one daemon a user, and the first command that needs it starts it (see
`daemon_process`).

Two commands that start it at once are no trouble: the second daemon finds the first one's lock and
ends, and both commands connect to the first.

Nothing here waits in trio: see `daemon_stream`.
"""

import contextlib
import os
import socket
import stat
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from acpterm.config import Settings, agent_socket, user_socket
from acpterm.runtime.blocking_io import write_fully
from acpterm.runtime.unix_socket import peer_of

if TYPE_CHECKING:
    from acpterm.client.daemon_process import DaemonProcess

PATH_BYTES_MAX: Final = 107
"""Bytes that a socket's path may have (unix(7))."""
# Seconds that a daemon has to come up.
START_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02
# Seconds for which a daemon that another command has started is waited for when ours has ended.
_OTHER_STARTER_TIMEOUT_S: Final = 1.0
# Seconds in which a daemon that runs notices that its socket file was removed, and makes another.
_REBOUND_S: Final = 3.0
# What an agent may do instead.
_EMBEDDED: Final = ", or use --embedded, which needs none"
_LOCK_BYTES_MAX: Final = 4096


class DaemonError(Exception):
    """There is no daemon, and none could be started; the message says why."""


class PlaceError(DaemonError):
    """No daemon can listen where the settings say."""


class NotRunningError(DaemonError):
    """No daemon runs, and none was to be started."""


class NoAnswerError(DaemonError):
    """The host has not answered `initialize` in time: a daemon may have no worker."""


def connect(settings: Settings, config: str | None = None, *, user: bool = False) -> socket.socket:
    """Connect to the daemon, which is started if it is not running; raises `DaemonError`.

    The connection is made as an agent, or by the `user`, at the other socket. `config` is the file
    that settings were read from, if one was named: the daemon reads it too. To be called before
    this process adopts orphans (`Trees`): the daemon must not become its child. It blocks for at
    most `START_TIMEOUT_S`.
    """
    path = user_socket(settings) if user else agent_socket(settings)
    with contextlib.suppress(OSError):
        return open_socket(path)
    _check_paths(settings, "" if user else _EMBEDDED)
    deadline = time.monotonic() + START_TIMEOUT_S
    agents = _wake(settings) if user else None
    with agents or contextlib.nullcontext():
        return _start_and_connect(settings, config, path, deadline, start=agents is None)


def _start_and_connect(
    settings: Settings, config: str | None, path: str, deadline: float, *, start: bool
) -> socket.socket:
    """Start a daemon, unless a service manager does, and connect to it once it listens."""
    # It is slow to import, and most commands find a daemon that runs.
    from acpterm.client.daemon_process import ALREADY_LISTENS  # noqa: PLC0415

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
            # Another daemon has the lock. It may be about to end; or its socket file was removed,
            # and it makes another.
            if sock := _open_of_holder(settings, path, deadline):
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
    from acpterm.client.daemon_process import StartError, start  # noqa: PLC0415  as above

    try:
        return start(settings, config, log_file(settings))
    except StartError as error:
        raise DaemonError(str(error)) from error


def _wake(settings: Settings) -> socket.socket | None:
    """Connect to the agents' socket; None if nobody listens there.

    A service manager may listen: it then starts the daemon, which listens for the user, too. The
    connection is held until the daemon does.
    """
    try:
        return open_socket(agent_socket(settings))
    except OSError:
        return None


def _open_within(seconds: float, path: str, deadline: float) -> socket.socket | None:
    until = min(deadline, time.monotonic() + seconds)
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            return open_socket(path)
        time.sleep(_POLL_S)
    return None


def open_socket(path: str) -> socket.socket:
    """Connect, without blocking; raises `OSError`, `BlockingIOError` if the queue is full.

    Raises `DaemonError` if another user listens: nothing is sent then, since a daemon is sent our
    environment. In a directory that others can write to, as `/tmp`, anybody may listen where ours
    does not. The socket that is returned blocks.
    """
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        sock.connect(path)
        sock.setblocking(True)
        _check_owner(sock, path)
    except BaseException:
        sock.close()
        raise
    return sock


def _check_owner(sock: socket.socket, path: str) -> None:
    uid = peer_of(sock).uid
    if uid not in (os.geteuid(), 0):
        raise DaemonError(
            f"the daemon at {path} is another user's (uid {uid}): choose another --socket, or "
            "use --embedded, which needs none"
        )


def connect_running(settings: Settings) -> socket.socket | None:
    """Connect the user to the daemon if it is running; None if it is not.

    Raises `DaemonError` if none can run there.
    """
    try:
        return open_socket(user_socket(settings))
    except OSError:
        _check_paths(settings)
        return None


class Lock(NamedTuple):
    """What the lock file beside an agents' socket says of the daemon that listens there."""

    pid: int | None = None
    """The keeper's."""
    message: str | None = None
    """Why there is no worker, and what to do; None while there is one."""


def read_lock(settings: Settings) -> Lock:
    """Read the lock file of the agents' socket; one that cannot be read says nothing."""
    try:
        with open(f"{agent_socket(settings)}.lock", errors="replace") as file:
            lines = file.read(_LOCK_BYTES_MAX).splitlines()
    except OSError:
        return Lock()
    pid = int(lines[0]) if lines and lines[0].isascii() and lines[0].isdigit() else None
    return Lock(pid, " ".join(lines[1:]).strip() or None)


def _check_paths(settings: Settings, otherwise: str = "") -> None:
    """Raise `PlaceError` if no daemon can listen where it would be; says what to do `otherwise`."""
    for path in (agent_socket(settings), user_socket(settings)):
        if (size := len(os.fsencode(path))) > PATH_BYTES_MAX:
            raise PlaceError(
                f"{path} has {size} bytes, and a socket's path at most {PATH_BYTES_MAX}: "
                f"choose a shorter one with --socket{otherwise}"
            )
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise PlaceError(
                    f"{path} is there and is no socket: remove it, or choose another --socket"
                    f"{otherwise}"
                )


def log_file(settings: Settings) -> str:
    """Return the path of the log of a daemon that a command starts."""
    return f"{agent_socket(settings)}.log"


def _open_of_holder(settings: Settings, path: str, deadline: float) -> socket.socket | None:
    """Connect to a daemon that has the lock once it listens again; report that it does not."""
    pid = read_lock(settings).pid
    if pid is not None and not os.path.lexists(path):
        with contextlib.suppress(OSError):
            write_fully(2, f"acpterm: {_held(path, pid)}: waiting for it\n".encode())
    return _open_within(_REBOUND_S, path, deadline)


def _held(path: str, pid: int) -> str:
    return f"process {pid} holds the lock {path}.lock, and does not listen at {path}"
