"""The process of a daemon that a command starts, and the log of its start.

It belongs to no command: it has a session of its own and no terminal, outlives the command that
started it, and ends by itself when no client was connected for a while (`idle_exit`). The log of
its start is a file beside its socket, and is quoted in the error when it does not come up.
"""

import os
import subprocess
import sys
from typing import Final

from acpterm.config import ENV_PREFIX, Settings, agent_socket, user_socket
from acpterm.pty.processes import identity
from acpterm.pty.tracking.marks import DETACHED
from acpterm.runtime.unix_socket import ALREADY_LISTENS, ListenError, make_private_dir

__all__ = ["ALREADY_LISTENS", "DaemonProcess", "StartError", "start"]

# Variables that are meant for this process and not for its daemon.
_NOT_PASSED_ON: Final = ("LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "NOTIFY_SOCKET")
# Characters of the log, from its end, that are quoted.
_QUOTED_MAX: Final = 2000


class StartError(Exception):
    """No daemon can be started; the message says why."""


class DaemonProcess:
    """A daemon that was started, by its log, whose first line is its pid."""

    def __init__(self, log: str) -> None:
        self._log: Final = log

    def is_alive(self) -> bool:
        """Return whether the daemon is still there."""
        try:
            with open(self._log, "rb") as file:
                found = identity(int(file.readline()))
        except (OSError, ValueError):
            return True
        # A zombie has ended: its parent has not reaped it yet.
        return found is not None and not found.zombie

    def output(self) -> str:
        """Return the end of its log, without the pid."""
        try:
            with open(self._log, errors="replace") as file:
                lines = file.read()[-_QUOTED_MAX:].strip().splitlines()[1:]
        except OSError as error:
            return f"its log {self._log} cannot be read: {error.strerror}"
        return "\n".join(lines) or "it said nothing"


def start(settings: Settings, config: str | None, log: str) -> DaemonProcess:
    """Start a daemon that writes to the file `log`. Raises `StartError`."""
    path = agent_socket(settings)
    command = [sys.executable, "-P", "-m", "acpterm", "serve", "--socket", path, "--when-needed"]
    env = {name: os.environ[name] for name in os.environ if name not in _NOT_PASSED_ON}
    # This process may adopt orphans; its trees must not end the daemon.
    env[DETACHED[-1]] = "1"
    if settings.user_socket is not None:
        env[f"{ENV_PREFIX}USER_SOCKET"] = user_socket(settings)
    # It runs in another directory.
    if config is not None:
        command += ["--config", os.path.abspath(config)]
    elif named := env.get(f"{ENV_PREFIX}CONFIG"):
        env[f"{ENV_PREFIX}CONFIG"] = os.path.abspath(named)
    # No one rotates its log.
    env.setdefault(f"{ENV_PREFIX}LOG_LEVEL", "warning")
    try:
        make_private_dir(os.path.dirname(path))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        stderr = os.open(log, flags, 0o600)
        try:
            # The shell ends at once, so that the daemon is an orphan from its beginning.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" & echo $! >&2', "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
                cwd="/",
                env=env,
                check=True,
            )
        finally:
            os.close(stderr)
    except (OSError, ListenError, subprocess.CalledProcessError) as error:
        raise StartError(
            f"no daemon can be started for {path}: {error}; see acpterm serve, or use --embedded "
            "where there is such a flag"
        ) from error
    return DaemonProcess(log)
