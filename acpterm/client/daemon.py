"""The daemon, as its users find it: where it listens, and how it is started when it does not.

As with tmux there is one daemon a user, and whoever needs it first starts it. It belongs to nobody
then: it has a session of its own and no terminal, outlives whoever started it, and ends by itself
when nobody was connected for a while (`idle_exit`). What it says of its start is in a file beside
its socket, and in the error when it does not come up.

Two that start it at once are no trouble: the second daemon finds the first one's lock and ends, and
both connect to the first.
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
from acpterm.pty.processes import identity
from acpterm.pty.tracking.marks import DETACHED
from acpterm.runtime import stdio
from acpterm.runtime.threads import run_blocking
from acpterm.runtime.unix_socket import ALREADY_LISTENS, ListenError, make_private_dir, peer_of

PATH_BYTES_MAX: Final = 107
"""Bytes that a socket's path may have (unix(7))."""
# Seconds that a daemon has to come up.
START_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02
# Seconds that one which somebody else has started may still take when ours has ended.
_OTHER_STARTER_TIMEOUT_S: Final = 1.0
# Seconds in which a daemon that runs notices that its socket file was removed, and makes another.
_REBOUND_S: Final = 3.0
# What is meant for this process and not for its daemon.
_NOT_PASSED_ON: Final = ("LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "NOTIFY_SOCKET")
# What an agent may do instead.
_EMBEDDED: Final = ", or use --embedded, which needs none"
# Of what it said: the end.
_SAID: Final = 2000
_LOCK_BYTES_MAX: Final = 4096


class DaemonError(Exception):
    """There is no daemon, and none could be started; the message says why."""


class PlaceError(DaemonError):
    """No daemon can listen where it would have to."""


async def connect(
    settings: Settings, config: str | None = None, *, user: bool = False
) -> trio.SocketStream:
    """Connect to the daemon, which is started if it is not running; raises `DaemonError`.

    It is connected to as an agent, or by the `user`, at its other socket. `config` is the file that
    settings were read from, if one was named: the daemon reads it too. To be called before this
    process adopts orphans (`Trees`): the daemon is to be nobody's child.
    """
    path = user_socket(settings) if user else agent_socket(settings)
    with contextlib.suppress(OSError):
        return await open_socket(path)
    _check_places(settings, "" if user else _EMBEDDED)
    why, said = "it takes no connections", "it was woken by a connection of ours"
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
                    if ALREADY_LISTENS not in _said(log):
                        break
                    # Another one has the lock. It may be about to end; or its socket file was
                    # removed, and it makes another.
                    if stream := await _open_of_holder(settings, path):
                        return stream
                    log = await run_blocking(partial(_start, settings, config))
                await trio.sleep(_POLL_S)
        if log is not None:
            said = _said(log)
    if ALREADY_LISTENS in said and (pid := read_lock(settings).pid) is not None:
        raise DaemonError(
            f"{_held(path, pid)}: wait a minute, and if it still does not, end it with kill {pid}; "
            "or use --embedded, where there is such a flag"
        )
    raise DaemonError(
        f"the daemon for {path} does not answer ({why}): {said}; run acpterm serve to see why, or "
        "use --embedded, where there is such a flag"
    )


async def _wake(settings: Settings, stack: contextlib.AsyncExitStack) -> bool:
    """Connect to the agents' socket, if somebody listens there: it is held until `stack` closes.

    A service manager may: then it starts the daemon, which listens for the user, too.
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
    """Connect; raises `OSError`, and `DaemonError` if another user listens: nothing is sent then.

    A daemon is told our environment. In a folder that others can write to, as `/tmp`, anybody may
    listen where ours is not.
    """
    stream = await trio.open_unix_socket(path)
    uid = peer_of(stream).uid
    if uid < 0:
        # trio takes the EAGAIN of a Unix socket for a connection that is under way.
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
    """Connect the user to the daemon if it is running; None if it is not.

    Raises `DaemonError` if none can run there.
    """
    try:
        return await open_socket(user_socket(settings))
    except OSError:
        _check_places(settings)
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


def _check_places(settings: Settings, otherwise: str = "") -> None:
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


def _start(settings: Settings, config: str | None) -> str:
    """Start a daemon, and give the file that its log and, in its first line, its pid are in."""
    path, log = agent_socket(settings), log_file(settings)
    command = [sys.executable, "-P", "-m", "acpterm", "serve", "--socket", path, "--when-needed"]
    env = {name: os.environ[name] for name in os.environ if name not in _NOT_PASSED_ON}
    # This process may adopt orphans; the daemon is none that its trees may end.
    env[DETACHED[-1]] = "1"
    if settings.user_socket is not None:
        env[f"{ENV_PREFIX}USER_SOCKET"] = user_socket(settings)
    # Its folder is another.
    if config is not None:
        command += ["--config", os.path.abspath(config)]
    elif named := env.get(f"{ENV_PREFIX}CONFIG"):
        env[f"{ENV_PREFIX}CONFIG"] = os.path.abspath(named)
    # Nobody looks after its log.
    env.setdefault(f"{ENV_PREFIX}LOG_LEVEL", "warning")
    try:
        make_private_dir(os.path.dirname(path))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        said = os.open(log, flags, 0o600)
        try:
            # The shell ends at once, so that the daemon is an orphan from its beginning.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" & echo $! >&2', "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
                cwd="/",
                env=env,
                check=True,
            )
        finally:
            os.close(said)
    except (OSError, ListenError, subprocess.CalledProcessError) as error:
        raise DaemonError(
            f"no daemon can be started for {path}: {error}; see acpterm serve, or use --embedded "
            "where there is such a flag"
        ) from error
    return log


async def _open_of_holder(settings: Settings, path: str) -> trio.SocketStream | None:
    """Connect to a daemon that has the lock, once it listens again; say that it does not."""
    pid = read_lock(settings).pid
    if pid is not None and not os.path.lexists(path):  # noqa: ASYNC240  as quick as the open above
        with contextlib.suppress(OSError):
            await stdio.write_all(2, f"acpterm: {_held(path, pid)}: waiting for it\n".encode())
    return await _open_within(_REBOUND_S, path)


def _held(path: str, pid: int) -> str:
    return f"process {pid} holds the lock {path}.lock, and does not listen at {path}"


def _is_alive(log: str) -> bool:
    """Whether the daemon that writes to this log is still there."""
    try:
        with open(log, "rb") as file:
            found = identity(int(file.readline()))
    except (OSError, ValueError):
        return True
    # One that nobody has waited for yet has ended all the same.
    return found is not None and not found.zombie


def _said(log: str) -> str:
    try:
        with open(log, errors="replace") as file:
            lines = file.read()[-_SAID:].strip().splitlines()[1:]
    except OSError as error:
        return f"its log {log} cannot be read: {error.strerror}"
    return "\n".join(lines) or "it said nothing"
