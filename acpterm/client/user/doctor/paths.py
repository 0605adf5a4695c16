"""Where acpterm keeps things: its settings, its sockets, its recordings; and its daemon."""

import os
import stat
import tempfile
from typing import Final

import trio

from acpterm import __version__
from acpterm.acp.user_api import StatusResponse
from acpterm.client.daemon import PATH_BYTES_MAX, DaemonError, NotRunningError, PlaceError, log_file
from acpterm.client.errors import root_error
from acpterm.client.user.client import open_user_client
from acpterm.client.user.doctor.check import CheckResult, missing, ok, problem
from acpterm.client.user.format import duration, summary_line
from acpterm.config import (
    ConfigError,
    Settings,
    agent_socket,
    default_file,
    default_record_dir,
    load,
    user_socket,
)
from acpterm.jsonrpc import RpcError

# Bytes of a log that are looked at.
_LOG_BYTES_MAX: Final = 1024 * 1024
_OTHERS_MODE: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ: Final = stat.S_IRGRP | stat.S_IROTH


def settings_file(config: str | None, socket: str | None) -> tuple[Settings, CheckResult]:
    """Read the settings; those that are the defaults if they are wrong."""
    path = config or os.environ.get("ACPTERM_CONFIG") or default_file()
    try:
        chosen = load(config, flags={"socket": socket})
    except ConfigError as error:
        advice = "put it right: docs/settings.md says what there is"
        defaults = Settings(socket=socket)
        return defaults, problem("settings", summary_line(str(error)), advice, fatal=True)
    if os.path.exists(path):
        return chosen, ok("settings", f"{summary_line(path)} is right")
    return chosen, ok("settings", f"the defaults: there is no {summary_line(path)}")


def sockets(chosen: Settings) -> CheckResult:
    """Whether the sockets have a folder that is this user's alone, and are so themselves."""
    name = "sockets"
    for path in (agent_socket(chosen), user_socket(chosen)):
        directory = os.path.dirname(path)
        if len(os.fsencode(path)) > PATH_BYTES_MAX:
            found = f"{summary_line(path)}: a socket's path has {PATH_BYTES_MAX} bytes at most"
            return problem(name, found, "choose a shorter one with --socket", fatal=True)
        if wrong := _wrong_directory(directory):
            shown = summary_line(directory)
            advice = f"mkdir -p {shown}; chmod 700 {shown}; or choose another --socket"
            if os.path.isdir(directory) and os.stat(directory).st_mode & stat.S_ISVTX:
                # Others have their files there, as in /tmp.
                advice = "choose a --socket in a directory of your own"
            return problem(name, f"{summary_line(directory)} {wrong}", advice, fatal=True)
        try:
            there = os.lstat(path)
        except FileNotFoundError:
            continue
        if not stat.S_ISSOCK(there.st_mode):
            advice = "remove it, or choose another --socket"
            return problem(name, f"{summary_line(path)} is no socket", advice, fatal=True)
        if there.st_mode & _OTHERS_MODE or there.st_uid != os.geteuid():
            mode = f"{stat.S_IMODE(there.st_mode):o}"
            found = f"{summary_line(path)} is not yours alone (mode {mode}, uid {there.st_uid})"
            return problem(name, found, f"chmod 600 {summary_line(path)}")
    return ok(name, f"in {summary_line(os.path.dirname(user_socket(chosen)))}, yours alone")


def _wrong_directory(directory: str) -> str | None:
    """Say what is wrong with the folder of a socket; one that is not there can be made."""
    there = _nearest_existing(directory)
    if there != directory:
        why = _unwritable(there)
        return f"cannot be made: {why}" if why else None
    if not os.path.isdir(directory):
        return "is no folder"
    if not os.access(directory, os.W_OK | os.X_OK):
        return "cannot be written to"
    mode = os.stat(directory).st_mode
    if mode & _OTHERS_WRITE:
        return f"can be written to by others (mode {stat.S_IMODE(mode):o})"
    return None


def logs(chosen: Settings) -> CheckResult:
    """Where the daemon's logs are, and whether they can be read."""
    path = log_file(chosen)
    others = (
        "a daemon that systemd starts logs to journalctl --user -u acpterm, acpterm serve to its "
        "stderr"
    )
    try:
        with open(path, errors="replace") as file:
            found = [text for text in file.read(_LOG_BYTES_MAX).splitlines() if text]
    except FileNotFoundError:
        return ok("logs", f"a daemon that a command starts logs to {summary_line(path)}; {others}")
    except OSError as error:
        found_at = f"{summary_line(path)} cannot be read: {error.strerror}"
        return problem("logs", found_at, f"see to its permissions; {others}")
    # The first line is the daemon's pid, unless the daemon was not started by a command.
    if found and found[0].isdecimal():
        del found[0]
    said = f", the last: {summary_line(found[-1])}" if found else ""
    lines = "1 line" if len(found) == 1 else f"{len(found)} lines"
    return ok("logs", f"{summary_line(path)} has {lines}{said}; {others}")


def recordings(chosen: Settings) -> CheckResult:
    """Whether recordings have a folder; if there are to be any, one that is this user's alone."""
    directory = chosen.record_dir or default_record_dir()
    where = _nearest_existing(directory)
    if why := _unwritable(where):
        what = "nothing can be written to it" if where == directory else "it cannot be made"
        found = f"nothing can be recorded in {summary_line(directory)}: {what}: {why}"
        return problem("state", found, "see to its permissions, or choose another record_dir")
    if chosen.record and (loose := _check_permissions(directory)):
        return loose
    return ok(
        "state",
        f"recordings are{'' if chosen.record else ' not'} kept in {summary_line(directory)}",
    )


def _nearest_existing(directory: str) -> str:
    """Give the folder, or the nearest above it that is there."""
    while not os.path.lexists(directory) and directory != os.path.dirname(directory):
        directory = os.path.dirname(directory)
    return directory


def _unwritable(directory: str) -> str | None:
    """Say why nothing can be made in a folder that is there: a folder is made on trial."""
    # Its mode does not say it all: root may write everywhere, but nobody makes a folder in /proc.
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".acpterm-doctor-", dir=directory))
    except OSError as error:
        return error.strerror or str(error)
    return None


def _check_permissions(directory: str) -> CheckResult | None:
    """Find that the folder of recordings is others' as well; one that is not there will not be."""
    if not os.path.isdir(directory):
        return None
    there = os.stat(directory)
    found, advice = (
        f"{summary_line(directory)}, where recordings are kept,",
        "choose another record_dir",
    )
    if there.st_uid != os.geteuid():
        found += f" is not yours (uid {there.st_uid}): nothing is recorded"
        return problem("state", found, advice)
    mode = f"mode {stat.S_IMODE(there.st_mode):o}"
    if there.st_mode & _OTHERS_WRITE:
        found += f" can be written to by others ({mode}): nothing is recorded"
    elif there.st_mode & _OTHERS_READ:
        found += f" can be read by others ({mode})"
    else:
        return None
    return problem("state", found, f"chmod 700 {summary_line(directory)}, or {advice}")


async def daemon(chosen: Settings, config: str | None) -> CheckResult:
    """Whether the daemon runs, and is of this version. None is started."""
    name = "daemon"
    try:
        async with open_user_client(chosen, config, start=False) as client:
            status = await client.request_no_params("status", StatusResponse)
    except (NotRunningError, PlaceError):
        return ok(name, "not running; it is started when it is needed")
    except (DaemonError, RpcError, ExceptionGroup) as error:
        advice = "acpterm shutdown, or end it by its pid (acpterm.sock's .lock file has it)"
        return problem(name, summary_line(root_error(error)), advice)
    found = f"acpterm {summary_line(status.version)}, pid {status.pid}, "
    found += f"runs for {duration(status.uptime_ms / 1000)}, processes known by {status.tracking}"
    if status.version != __version__:
        advice = "acpterm shutdown ends it, and its terminals; the new one is started when needed"
        return problem(name, f"{found}; this is {__version__}", advice)
    await trio.lowlevel.checkpoint()
    return ok(name, found)


def runtime() -> CheckResult:
    """Whether there is a folder for sockets that goes when the user logs out."""
    directory = os.environ.get("XDG_RUNTIME_DIR", "")
    if not directory:
        advice = "sockets go to /tmp then, unless /run/user has a folder; pam_systemd sets it"
        return missing("runtime folder", "XDG_RUNTIME_DIR is not set", advice)
    try:
        found = os.stat(directory)
    except OSError as error:
        advice = f"unset it, or make that directory with mode 700: {summary_line(directory)}"
        return problem("runtime directory", f"{summary_line(directory)}: {error.strerror}", advice)
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_MODE:
        advice = f"chmod 700 {summary_line(directory)}; after su or sudo, log in properly"
        mode = f"mode {stat.S_IMODE(found.st_mode):o}, uid {found.st_uid}"
        return problem(
            "runtime directory", f"{summary_line(directory)} is not yours alone ({mode})", advice
        )
    return ok("runtime folder", summary_line(directory))
