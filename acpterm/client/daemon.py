"""Connect to the daemon, and start it if it is not running.

As with tmux there is one daemon per user, started by the first command that needs it. It runs in a
session of its own without a terminal, outlives the command that started it, and exits once it had
no connection for a while (`idle_exit`). What it prints while starting goes to a log file beside its
socket, and into the error if it does not come up.

Two commands may start a daemon at once: the second daemon finds the lock of the first and exits,
and both commands connect to the first.
"""

import contextlib
import errno
import os
import stat
import subprocess
import sys
from functools import partial
from typing import Final, NamedTuple

import trio

from acpterm.config import ENV_PREFIX, Settings, agent_socket, user_socket
from acpterm.host.server.listener import ALREADY_LISTENS, ListenError, make_private_dir
from acpterm.host.server.peer import peer_of
from acpterm.pty.processes import identity
from acpterm.pty.tracking.marks import DETACHED
from acpterm.runtime import stdio
from acpterm.runtime.threads import run_blocking

PATH_BYTES_MAX: Final = 107
"""Bytes that the path of a socket may have (unix(7))."""
# Time for a daemon to start listening.
START_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02
# Time for a daemon that another command has started to listen, after ours has exited.
_OTHER_STARTER_TIMEOUT_S: Final = 1.0
# A running daemon notices within this time that its socket file was removed, and binds again.
_REBIND_TIMEOUT_S: Final = 3.0
# Variables of our service manager that the daemon must not inherit.
_REMOVED_VARIABLES: Final = ("LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "NOTIFY_SOCKET")
# The alternative that commands for agents have, at the end of an error message.
_OR_EMBEDDED: Final = ", or use --embedded, which needs none"
# Characters of the end of the log that an error message quotes.
_LOG_TAIL_CHARS: Final = 2000
_LOCK_BYTES_MAX: Final = 4096


class DaemonError(Exception):
    """No daemon is running, and none could be started; the message says why."""


class PlaceError(DaemonError):
    """No daemon can listen at the configured socket paths."""


async def connect(
    settings: Settings, config: str | None = None, *, user: bool = False
) -> trio.SocketStream:
    """Connect to the daemon, and start it first if it is not running. Raises `DaemonError`.

    Connect to the agents' socket, or with `user` to the user's socket. `config` is the settings
    file if one was named: the daemon reads it too. Must be called before this process becomes a
    subreaper (`Trees`), since the daemon must not become its child.
    """
    path = user_socket(settings) if user else agent_socket(settings)
    with contextlib.suppress(OSError):
        return await open_socket(path)
    _check_socket_paths(settings, "" if user else _OR_EMBEDDED)
    why, output = "it takes no connections", "it was woken by a connection of ours"
    async with contextlib.AsyncExitStack() as stack:
        with trio.move_on_after(START_TIMEOUT_S):
            log = None
            if not user or not await _wake(settings, stack):
                log = await run_blocking(partial(_start, settings, config))
            while True:
                try:
                    return await open_socket(path)
                except OSError as error:
                    why = error.strerror or str(error)
                if log is not None and not await run_blocking(partial(_is_alive, log)):
                    if stream := await _open_within(_OTHER_STARTER_TIMEOUT_S, path):
                        return stream
                    if ALREADY_LISTENS not in _log_tail(log):
                        break
                    # Another daemon holds the lock. Either it is about to exit, or its socket file
                    # was removed and it is about to bind again.
                    if stream := await _open_of_holder(settings, path):
                        return stream
                    log = await run_blocking(partial(_start, settings, config))
                await trio.sleep(_POLL_S)
        if log is not None:
            output = _log_tail(log)
    if ALREADY_LISTENS in output and (pid := read_lock(settings).pid) is not None:
        raise DaemonError(
            f"{_lock_held(path, pid)}: wait a minute, and if it still does not, end it with "
            f"kill {pid}; or use --embedded, where there is such a flag"
        )
    raise DaemonError(
        f"the daemon for {path} does not answer ({why}): {output}; run acpterm serve to see why, "
        "or use --embedded, where there is such a flag"
    )


async def _wake(settings: Settings, stack: contextlib.AsyncExitStack) -> bool:
    """Connect to the agents' socket until `stack` closes; return whether a process listens there.

    That may be a service manager, which then starts the daemon; the daemon binds the user's socket.
    """
    try:
        await stack.enter_async_context(await open_socket(agent_socket(settings)))
    except OSError:
        return False
    return True


async def _open_within(seconds: float, path: str) -> trio.SocketStream | None:
    with trio.move_on_after(seconds):
        while True:
            with contextlib.suppress(OSError):
                return await open_socket(path)
            await trio.sleep(_POLL_S)
    return None


async def open_socket(path: str) -> trio.SocketStream:
    """Connect to a socket of the daemon.

    Raises `OSError`, and `DaemonError` if the listening process is another user's. The check comes
    before anything is sent, because the daemon is sent our environment, and in a directory that
    others can write to, such as `/tmp`, another user may listen in place of our daemon.
    """
    stream = await trio.open_unix_socket(path)
    uid = peer_of(stream).uid
    if uid < 0:
        # trio treats the EAGAIN of a Unix socket as a connection in progress.
        await stream.aclose()
        raise BlockingIOError(errno.EAGAIN, "the daemon's queue of connections is full", path)
    if uid not in (os.geteuid(), 0):
        await stream.aclose()
        raise DaemonError(
            f"the daemon at {path} is another user's (uid {uid}): choose another --socket, or use "
            "--embedded, which needs none"
        )
    return stream


async def connect_running(settings: Settings) -> trio.SocketStream | None:
    """Connect to the user's socket; return None if no daemon is running.

    Raises `DaemonError` if no daemon can listen there.
    """
    try:
        return await open_socket(user_socket(settings))
    except OSError:
        _check_socket_paths(settings)
        return None


class Lock(NamedTuple):
    """The contents of the lock file beside an agents' socket."""

    pid: int | None = None
    """The keeper's process id."""
    message: str | None = None
    """Why there is no worker, and what to do; None while there is one."""


def read_lock(settings: Settings) -> Lock:
    """Read the lock file of the agents' socket; return an empty `Lock` if it cannot be read."""
    try:
        with open(f"{agent_socket(settings)}.lock", errors="replace") as file:
            lines = file.read(_LOCK_BYTES_MAX).splitlines()
    except OSError:
        return Lock()
    pid = int(lines[0]) if lines and lines[0].isascii() and lines[0].isdigit() else None
    return Lock(pid, " ".join(lines[1:]).strip() or None)


def _check_socket_paths(settings: Settings, alternative: str = "") -> None:
    """Raise `PlaceError`, with the `alternative`, if no daemon can listen at the socket paths."""
    for path in (agent_socket(settings), user_socket(settings)):
        if (size := len(os.fsencode(path))) > PATH_BYTES_MAX:
            raise PlaceError(
                f"{path} has {size} bytes, and a socket's path at most {PATH_BYTES_MAX}: "
                f"choose a shorter one with --socket{alternative}"
            )
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise PlaceError(
                    f"{path} is there and is no socket: remove it, or choose another --socket"
                    f"{alternative}"
                )


def log_file(settings: Settings) -> str:
    """Return the path of the log file of a daemon that a command starts."""
    return f"{agent_socket(settings)}.log"


def _start(settings: Settings, config: str | None) -> str:
    """Start a daemon; return the path of its log, whose first line is the daemon's pid."""
    path, log = agent_socket(settings), log_file(settings)
    command = [sys.executable, "-P", "-m", "acpterm", "serve", "--socket", path, "--when-needed"]
    env = {name: os.environ[name] for name in os.environ if name not in _REMOVED_VARIABLES}
    # This process may become a subreaper: mark the daemon as not belonging to its trees.
    env[DETACHED[-1]] = "1"
    if settings.user_socket is not None:
        env[f"{ENV_PREFIX}USER_SOCKET"] = user_socket(settings)
    # The daemon runs in another directory: relative paths have to be resolved here.
    if config is not None:
        command += ["--config", os.path.abspath(config)]
    elif named := env.get(f"{ENV_PREFIX}CONFIG"):
        env[f"{ENV_PREFIX}CONFIG"] = os.path.abspath(named)
    # Nothing rotates its log: keep it small.
    env.setdefault(f"{ENV_PREFIX}LOG_LEVEL", "warning")
    try:
        make_private_dir(os.path.dirname(path))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        log_fd = os.open(log, flags, 0o600)
        try:
            # The shell exits at once, which makes the daemon an orphan from the start.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" & echo $! >&2', "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log_fd,
                start_new_session=True,
                cwd="/",
                env=env,
                check=True,
            )
        finally:
            os.close(log_fd)
    except (OSError, ListenError, subprocess.CalledProcessError) as error:
        raise DaemonError(
            f"no daemon can be started for {path}: {error}; see acpterm serve, or use --embedded "
            "where there is such a flag"
        ) from error
    return log


async def _open_of_holder(settings: Settings, path: str) -> trio.SocketStream | None:
    """Connect to the daemon that holds the lock, once it listens again; warn if it does not."""
    pid = read_lock(settings).pid
    if pid is not None and not os.path.lexists(path):  # noqa: ASYNC240  as quick as the open above
        with contextlib.suppress(OSError):
            await stdio.write_all(2, f"acpterm: {_lock_held(path, pid)}: waiting for it\n".encode())
    return await _open_within(_REBIND_TIMEOUT_S, path)


def _lock_held(path: str, pid: int) -> str:
    return f"process {pid} holds the lock {path}.lock, and does not listen at {path}"


def _is_alive(log: str) -> bool:
    """Return whether the daemon that writes to this log is running."""
    try:
        with open(log, "rb") as file:
            process = identity(int(file.readline()))
    except (OSError, ValueError):
        return True
    # A zombie has exited, even if its parent has not reaped it yet.
    return process is not None and not process.zombie


def _log_tail(log: str) -> str:
    try:
        with open(log, errors="replace") as file:
            lines = file.read()[-_LOG_TAIL_CHARS:].strip().splitlines()[1:]
    except OSError as error:
        return f"its log {log} cannot be read: {error.strerror}"
    return "\n".join(lines) or "it said nothing"
