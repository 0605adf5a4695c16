"""Refuses, in agents' terminals, the commands that are the user's: changes of settings, undo.

Two kinds of evidence show whether this process runs in an agent's terminal:

- A running daemon knows the processes of each terminal, whatever their environment. If the
  daemon refuses this process's connection to the user's socket, the command is refused; if the
  daemon accepts the connection, the command is allowed.
- If no daemon answers, the marks of this process and its ancestors decide. A mark (an environment
  variable or a resource limit) shows that the process is in a terminal, possibly one of an embedded
  host. That terminal may be an agent's, so the command is refused.

No daemon is started. A daemon without a worker does not answer, so the marks decide. A window
outside of acpterm has no marks. So in such a window, the user can repair settings that prevent the
worker from starting.

This keeps agents from changing the policy with one command. It is not a security boundary: a
program without a sandbox can write the files itself.
"""

import os
from contextlib import suppress
from typing import Final

from acpterm.commands.blocking_client import BlockingClient
from acpterm.config import ConfigError, Settings, load
from acpterm.link.daemon import DaemonError, connect_running
from acpterm.link.handshake import HandshakeRefusedError
from acpterm.pty import processes
from acpterm.pty.tracking import marks

_TELL: Final = "only the user {}: ask the user to run this command"


class NotTheUserError(Exception):
    """The command runs in a terminal that is or may be an agent's; the message says why."""


def check_user(config: str | None = None, does: str = "changes these settings") -> None:
    """Raise `NotTheUserError` if this process is or may be in an agent's terminal."""
    try:
        settings = load(config)
    except ConfigError:
        settings = Settings()
    try:
        refusal = _ask(settings)
    except DaemonError:
        refusal = _marked()
    if refusal is not None:
        raise NotTheUserError(f"{_TELL.format(does)} ({refusal})")


def _ask(settings: Settings) -> str | None:
    """Return the daemon's reason for refusing this process; raise `DaemonError` if none answers."""
    sock = connect_running(settings)
    if sock is None:
        raise DaemonError("no daemon is running")
    try:
        BlockingClient(settings, sock).close()
    except DaemonError as error:
        if isinstance(error.__cause__, HandshakeRefusedError):
            return error.__cause__.message
        raise
    return None


def _marked() -> str | None:
    """Say which process, this one or an ancestor, has the mark of a terminal."""
    pid, youngest = os.getpid(), float("inf")
    while pid > 0:
        process = processes.identity(pid)
        if process is None or process.started > youngest:
            return None
        with suppress(OSError):  # no descriptor is free
            found = marks.read(pid)
            if not found.detached and (found.terminal is not None or found.tag is not None):
                terminal = "a terminal" if found.terminal is None else f"terminal {found.terminal}"
                return f"process {pid} has the mark of {terminal} of acpterm"
        pid, youngest = process.ppid, process.started
    return None
