"""Starts a daemon as a separate process.

The daemon is in a process session of its own (setsid(2)) and has no controlling terminal, so it
outlives the command that started it. It exits by itself once it has had no client and no unreleased
terminal for a while (setting `idle_exit`). It logs to a file beside its socket. If the daemon does
not start to listen, the error message quotes that log.

The command may be one agent's, and the daemon serves them all: settings in the environment of the
command do not reach the daemon (`config.on_demand_environment`).
"""

import os
import subprocess
import sys
from typing import Final

from acpterm.config import (
    ENV_PREFIX,
    Settings,
    agent_socket,
    default_file,
    on_demand_environment,
    user_socket,
)
from acpterm.config.paths import account_home, file_in_home, is_usual_socket
from acpterm.pty.processes import identity
from acpterm.pty.tracking import marks
from acpterm.runtime.unix_socket import ALREADY_LISTENS, ListenError, make_private_dir

__all__ = ["ALREADY_LISTENS", "DaemonProcess", "StartError", "start"]

# Variables that are meant for this process, not for the daemon.
_NOT_PASSED_ON: Final = ("LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "NOTIFY_SOCKET")
# Maximum length of the quoted end of the log, in characters.
_QUOTED_MAX: Final = 2000


class StartError(Exception):
    """No daemon can be started; the message says why."""


class DaemonProcess:
    """A daemon that this process started; the first line of the file `log` is its pid."""

    def __init__(self, log: str) -> None:
        self._log: Final = log

    def is_alive(self) -> bool:
        """Return whether the daemon runs; True also while its pid is not in the log yet."""
        try:
            with open(self._log, "rb") as file:
                found = identity(int(file.readline()))
        except (OSError, ValueError):
            return True
        # A zombie has ended: its parent has not reaped it yet.
        return found is not None and not found.zombie

    def output(self) -> str:
        """Return the end of the log, without the pid; if the log is unreadable, return why."""
        try:
            with open(self._log, errors="replace") as file:
                lines = file.read()[-_QUOTED_MAX:].strip().splitlines()[1:]
        except OSError as error:
            return f"its log {self._log} cannot be read: {error.strerror}"
        return "\n".join(lines) or "its log is empty"


def is_in_a_terminal() -> bool:
    """Return whether this process runs in one of acpterm's terminals, as its marks show."""
    return marks.TERMINAL in os.environ or marks.read(os.getpid()).tag is not None


def start(settings: Settings, config: str | None, log: str) -> DaemonProcess:
    """Start a daemon whose log is the file `log`; do not wait until the daemon listens.

    Raises `StartError` if this process runs in a terminal of acpterm, or if it cannot be started.
    """
    if is_in_a_terminal():
        raise StartError(
            f"no daemon listens at {user_socket(settings)}, and none is started from within a "
            "terminal of acpterm, with which it would end: start it outside (acpterm run -d true), "
            "or use --embedded where there is such a flag"
        )
    path = agent_socket(settings)
    command = [sys.executable, "-P", "-m", "acpterm", "serve", "--socket", path, "--when-needed"]
    env = on_demand_environment(os.environ)
    if ignored := sorted(os.environ.keys() - env.keys()):
        sys.stderr.write(
            f"acpterm: the daemon serves all agents and does not take {', '.join(ignored)} from "
            "this environment: use the settings file, or start the daemon by acpterm serve\n"
        )
    env = {name: value for name, value in env.items() if name not in _NOT_PASSED_ON}
    if is_usual_socket(path):
        _use_own_home(env, config)
    # This process may adopt orphans. The mark keeps its trees from killing the daemon.
    env[marks.STARTED_DETACHED] = "1"
    if settings.user_socket is not None:
        env[f"{ENV_PREFIX}USER_SOCKET"] = user_socket(settings)
    # The daemon's working directory is /, so a relative path would be wrong there.
    if config is not None:
        command += ["--config", os.path.abspath(config)]
    # The daemon may run for months, and its log should stay small.
    env.setdefault(f"{ENV_PREFIX}LOG_LEVEL", "warning")
    try:
        make_private_dir(os.path.dirname(path))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        stderr = os.open(log, flags, 0o600)
        try:
            # The shell exits at once, so that the daemon is an orphan from the beginning.
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


def _use_own_home(env: dict[str, str], config: str | None) -> None:
    """Make the daemon of all agents use the settings, rules and state in the user's own home."""
    # `env` may be that of one agent. It must not choose the policy of the others, nor have the
    # audit log and the logins of the page in a directory that it may write.
    if (home := account_home()) is None:
        return
    own, named = file_in_home(home), os.path.abspath(config or default_file())
    # A symbolic link to the same file or directory is fine.
    is_same = os.path.realpath(own) == os.path.realpath(named)
    if os.path.exists(named) and not is_same:
        if config:
            whose, advice = "--config names", "copy it there"
        else:
            whose = "the environment's XDG_CONFIG_HOME or HOME has"
            advice = "link its directory there (ln -s)"
        raise StartError(
            f"no daemon is started: {whose} the settings file {named}, and a daemon for all your "
            f"agents reads {own}: {advice}, or start acpterm serve --config {named}"
        )
    env["HOME"] = home
    env.pop("XDG_CONFIG_HOME", None)
    env.pop("XDG_STATE_HOME", None)
