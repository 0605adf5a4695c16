"""Checks of acpterm's files (settings, sockets, logs, recordings) and of its daemon."""

import os
import stat
import tempfile
from typing import Final

import trio

from acpterm import __version__
from acpterm.acp.user_api import StatusResponse
from acpterm.commands.client import open_user_client
from acpterm.commands.doctor.check import CheckResult, missing, ok, problem
from acpterm.commands.format import duration, summary_line
from acpterm.config import (
    ConfigError,
    Settings,
    agent_socket,
    default_file,
    default_record_dir,
    load,
    user_socket,
    valid_places,
)
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import (
    PATH_BYTES_MAX,
    DaemonError,
    NotRunningError,
    SocketPathError,
    log_file,
    read_lock,
)
from acpterm.link.daemon_process import is_in_a_terminal
from acpterm.link.errors import root_error
from acpterm.pty import processes

# Maximum length of the log that is read. The daemon rotates its log at 1 MiB.
_LOG_BYTES_MAX: Final = 1024 * 1024
_OTHERS_MODE: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ: Final = stat.S_IRGRP | stat.S_IROTH


def settings_file(config: str | None, socket: str | None) -> tuple[Settings, CheckResult]:
    """Check the settings file; return its settings and the result of the check."""
    path = config or os.environ.get("ACPTERM_CONFIG") or default_file()
    try:
        chosen = load(config, flags={"socket": socket})
    except ConfigError as error:
        advice = "correct it: docs/settings.md lists the settings"
        defaults = Settings(socket=socket, **valid_places(config))
        return defaults, problem("settings", summary_line(str(error)), advice, fatal=True)
    if os.path.exists(path):
        return chosen, ok("settings", f"{summary_line(path)} is right")
    return chosen, ok("settings", f"the defaults: there is no {summary_line(path)}")


def sockets(chosen: Settings) -> CheckResult:
    """Check that sockets can be created, and that other users cannot access or replace them."""
    name = "sockets"
    for path in (agent_socket(chosen), user_socket(chosen)):
        directory = os.path.dirname(path)
        if len(os.fsencode(path)) > PATH_BYTES_MAX:
            found = f"{summary_line(path)}: a socket's path has {PATH_BYTES_MAX} bytes at most"
            return problem(name, found, "choose a shorter one with --socket", fatal=True)
        if wrong := _wrong_directory(directory):
            where = summary_line(directory)
            advice = f"mkdir -p {where}; chmod 700 {where}; or choose another --socket"
            if os.path.isdir(directory) and os.stat(directory).st_mode & stat.S_ISVTX:
                # A shared directory such as /tmp: its mode must not be changed.
                advice = "choose a --socket in a directory of your own"
            return problem(name, f"{where} {wrong}", advice, fatal=True)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            continue
        if not stat.S_ISSOCK(status.st_mode):
            advice = "remove it, or choose another --socket"
            return problem(name, f"{summary_line(path)} is no socket", advice, fatal=True)
        if status.st_mode & _OTHERS_MODE or status.st_uid != os.geteuid():
            mode = f"{stat.S_IMODE(status.st_mode):o}"
            found = f"{summary_line(path)} is not yours alone (mode {mode}, uid {status.st_uid})"
            return problem(name, found, f"chmod 600 {summary_line(path)}")
    return ok(name, f"in {summary_line(os.path.dirname(user_socket(chosen)))}, yours alone")


def _wrong_directory(directory: str) -> str | None:
    """Return why sockets cannot be created safely in `directory`, or None if they can."""
    existing = _nearest_existing(directory)
    if existing != directory:
        why = _unwritable(existing)
        return f"cannot be made: {why}" if why else None
    if not os.path.isdir(directory):
        return "is no directory"
    if not os.access(directory, os.W_OK | os.X_OK):
        return "cannot be written to"
    mode = os.stat(directory).st_mode
    if mode & _OTHERS_WRITE:
        return f"can be written to by others (mode {stat.S_IMODE(mode):o})"
    return None


def logs(chosen: Settings) -> CheckResult:
    """Check that the daemon's log can be read, and quote its last line."""
    path = log_file(chosen)
    others = (
        "a daemon that systemd starts logs to journalctl --user -u acpterm, acpterm serve to its "
        "stderr"
    )
    try:
        with open(path, errors="replace") as file:
            lines = [line for line in file.read(_LOG_BYTES_MAX).splitlines() if line]
    except FileNotFoundError:
        return ok("logs", f"a daemon that a command starts logs to {summary_line(path)}; {others}")
    except OSError as error:
        found_at = f"{summary_line(path)} cannot be read: {error.strerror}"
        return problem("logs", found_at, f"see to its permissions; {others}")
    # If a command started the daemon, the first line is the daemon's pid.
    if lines and lines[0].isdecimal():
        del lines[0]
    last = f", the last: {summary_line(lines[-1])}" if lines else ""
    count = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
    return ok("logs", f"{summary_line(path)} has {count}{last}; {others}")


def recordings(chosen: Settings) -> CheckResult:
    """Check that the directory of recordings is writable and, if recording is on, private."""
    directory = chosen.record_dir or default_record_dir()
    where = _nearest_existing(directory)
    if why := _unwritable(where):
        what = "nothing can be written to it" if where == directory else "it cannot be made"
        found = f"nothing can be recorded in {summary_line(directory)}: {what}: {why}"
        return problem("state", found, "see to its permissions, or choose another record_dir")
    if chosen.record and (result := _check_permissions(directory)):
        return result
    return ok(
        "state",
        f"recordings are{'' if chosen.record else ' not'} kept in {summary_line(directory)}",
    )


def _nearest_existing(directory: str) -> str:
    """Return the directory itself or its nearest existing ancestor."""
    while not os.path.lexists(directory) and directory != os.path.dirname(directory):
        directory = os.path.dirname(directory)
    return directory


def _unwritable(directory: str) -> str | None:
    """Return why no files can be created in an existing directory; None if they can."""
    # The directory's mode is no evidence: even root cannot create a directory in /proc.
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".acpterm-doctor-", dir=directory))
    except OSError as error:
        return error.strerror or str(error)
    return None


def _check_permissions(directory: str) -> CheckResult | None:
    """Return a `problem` if another user owns, can read or can write the recordings."""
    if not os.path.isdir(directory):
        return None
    status = os.stat(directory)
    found = f"{summary_line(directory)}, where recordings are kept,"
    advice = "choose another record_dir"
    if status.st_uid != os.geteuid():
        found += f" is not yours (uid {status.st_uid}): nothing is recorded"
        return problem("state", found, advice)
    mode = f"mode {stat.S_IMODE(status.st_mode):o}"
    if status.st_mode & _OTHERS_WRITE:
        found += f" can be written to by others ({mode}): nothing is recorded"
    elif status.st_mode & _OTHERS_READ:
        found += f" can be read by others ({mode})"
    else:
        return None
    return problem("state", found, f"chmod 700 {summary_line(directory)}, or {advice}")


async def daemon(chosen: Settings, config: str | None) -> CheckResult:
    """Check whether a daemon runs, and whether its version is that of this command."""
    name = "daemon"
    lock = read_lock(chosen)
    if lock.message and lock.pid and processes.identity(lock.pid) is not None:
        return problem(name, summary_line(lock.message), "acpterm restart", fatal=True)
    try:
        async with open_user_client(chosen, config, start=False) as client:
            status = await client.request_no_params("status", StatusResponse)
    except (NotRunningError, SocketPathError):
        when = "outside of acpterm's terminals" if is_in_a_terminal() else "when it is needed"
        return ok(name, f"not running; it is started {when}")
    except (DaemonError, RpcError, ExceptionGroup) as error:
        file = summary_line(f"{agent_socket(chosen)}.lock")
        advice = f"acpterm shutdown, or end it by its pid, which {file} has"
        if is_in_a_terminal():
            advice = "run it outside of acpterm's terminals; an agent asks the user"
        return problem(name, summary_line(root_error(error)), advice)
    found = f"acpterm {summary_line(status.version)}, pid {status.pid}, "
    found += f"runs for {duration(status.uptime_ms / 1000)}, processes known by {status.tracking}"
    if status.version != __version__:
        advice = "acpterm shutdown ends it, and its terminals; the new one is started when needed"
        return problem(name, f"{found}; this is {__version__}", advice)
    await trio.lowlevel.checkpoint()
    return ok(name, found)


def runtime() -> CheckResult:
    """Check that XDG_RUNTIME_DIR, the default directory for sockets, is this user's alone."""
    directory = os.environ.get("XDG_RUNTIME_DIR", "")
    if not directory:
        advice = (
            "sockets go to /tmp, unless /run/user has a directory of yours; pam_systemd sets it"
        )
        return missing("runtime directory", "XDG_RUNTIME_DIR is not set", advice)
    try:
        status = os.stat(directory)
    except OSError as error:
        advice = f"unset it, or make that directory with mode 700: {summary_line(directory)}"
        return problem("runtime directory", f"{summary_line(directory)}: {error.strerror}", advice)
    other = "unset it, or set it to a directory of your own with mode 700"
    if not stat.S_ISDIR(status.st_mode):
        found = f"{summary_line(directory)} is not a directory"
        return problem("runtime directory", found, other)
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_MODE:
        # Never advise to change the mode of a directory that others need too, such as /tmp.
        is_own = status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX
        advice = f"chmod 700 {summary_line(directory)}" if is_own else other
        advice += "; after su or sudo, log in properly"
        mode = f"mode {stat.S_IMODE(status.st_mode):o}, uid {status.st_uid}"
        return problem(
            "runtime directory", f"{summary_line(directory)} is not yours alone ({mode})", advice
        )
    return ok("runtime directory", summary_line(directory))
