"""Refuses in agents' terminals the commands that change acpterm's or agents' settings.

Two sources are asked. A running daemon knows by the processes whose terminal this is, whatever the
environment says: if it refuses this process its user's socket, the command is refused; if it admits
it, the command is the user's. If no daemon answers, the marks of this process and its ancestors
decide: with one, the process is in a terminal of another host, such as an embedded one, which may
be an agent's. No daemon is started. A daemon that is there and has no worker does not answer: its
user must be able to mend the settings that prevent the worker from starting.

This keeps agents from changing the policy with one command. It is not a boundary: a program without
a sandbox can write the files by itself.
"""

import os
from contextlib import suppress
from typing import Final

from acpterm.client.daemon import DaemonError, connect_running
from acpterm.client.errors import LostError
from acpterm.client.user.blocking_client import BlockingClient
from acpterm.config import ConfigError, Settings, load
from acpterm.jsonrpc import RpcError
from acpterm.pty import processes
from acpterm.pty.tracking import marks

_TELL: Final = "only the user changes these settings: ask the user to run this command"


class NotTheUserError(Exception):
    """The command runs in a terminal that is, or may be, an agent's; the message says why."""


def check_user(config: str | None = None) -> None:
    """Raise `NotTheUserError` if this process is, or may be, in an agent's terminal.

    `config` is the path of the settings file given on the command line, if any. If the settings are
    invalid, which the command may be about to mend, the daemon is looked for at the default place.
    """
    try:
        settings = load(config)
    except ConfigError:
        settings = Settings()
    try:
        refusal = _ask(settings)
    except (DaemonError, LostError):
        refusal = _marked()
    if refusal is not None:
        raise NotTheUserError(f"{_TELL} ({refusal})")


def _ask(settings: Settings) -> str | None:
    """Return why the daemon refuses this process; None if it does not.

    Raises `DaemonError` or `LostError` if no daemon answers.
    """
    sock = connect_running(settings)
    if sock is None:
        raise DaemonError("no daemon is running")
    client = BlockingClient(settings, sock)
    try:
        client.initialize(None)
    except DaemonError as error:
        if isinstance(error.__cause__, RpcError) and not isinstance(error.__cause__, LostError):
            return error.__cause__.message
        raise
    finally:
        client.close()
    return None


def _marked() -> str | None:
    """Return which mark of a terminal this process or an ancestor of it has; None if none has."""
    pid, youngest = os.getpid(), float("inf")
    while pid > 0:
        process = processes.identity(pid)
        if process is None or process.started > youngest:
            return None
        with suppress(OSError):  # no descriptor is free
            found = marks.read(pid)
            if not found.detached and (found.terminal is not None or found.tag is not None):
                return f"process {pid} is marked as one of acpterm's terminal {found.terminal}"
        pid, youngest = process.ppid, process.started
    return None
