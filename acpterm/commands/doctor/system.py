"""Checks of the machine and of this command's environment: Python, limits, locale, TERM."""

import codecs
import locale
import os
import platform
import resource
import sys
from typing import Final

from acpterm.commands.doctor.check import CheckResult, missing, ok, problem
from acpterm.commands.format import summary_line

# Number of terminals that the machine's limits should allow at once.
_TERMINALS_EXPECTED: Final = 64
_FILES_PER_TERMINAL: Final = 4
_FILES_RESERVED: Final = 64
_PTY_LIMITS: Final = "/proc/sys/kernel/pty"


def python() -> CheckResult:
    """Report the version and the path of the Python that runs this command."""
    version = platform.python_version()
    return ok("Python", f"{version} at {summary_line(sys.executable)}")


def system() -> CheckResult:
    """Check that the operating system is supported."""
    found = f"{platform.system()} {platform.release()} on {platform.machine()}"
    if platform.system() in ("Linux", "Darwin"):
        return ok("system", found)
    return problem("system", found, "acpterm is made for Linux and macOS; others are not tested")


def ptys() -> CheckResult:
    """Check that PTYs can be opened, and that enough of them are left."""
    try:
        master, slave = os.openpty()
    except OSError as error:
        return problem(
            "PTYs",
            f"none can be opened: {error.strerror}",
            "mount devpts at /dev/pts with ptmxmode=666, or raise /proc/sys/kernel/pty/max",
            fatal=True,
        )
    os.close(master)
    os.close(slave)
    try:
        limit, used = _read_int(f"{_PTY_LIMITS}/max"), _read_int(f"{_PTY_LIMITS}/nr")
    except (OSError, ValueError):
        return ok("PTYs", "can be opened")
    found = f"{used} of {limit} in use"
    if limit - used < _TERMINALS_EXPECTED:
        return problem("PTYs", found, f"raise the limit: sysctl kernel.pty.max={2 * limit}")
    return ok("PTYs", found)


def open_files() -> CheckResult:
    """Check that the hard limit of open files is high enough; the daemon raises its soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{_limit(hard)} for the daemon, {_limit(soft)} for what is started here"
    if (
        hard != resource.RLIM_INFINITY
        and hard < _FILES_RESERVED + _TERMINALS_EXPECTED * _FILES_PER_TERMINAL
    ):
        advice = "raise the hard limit: nofile in /etc/security/limits.conf, or LimitNOFILE="
        return problem("open files", found, f"{advice} in the systemd unit")
    return ok("open files", found)


def processes() -> CheckResult:
    """Check that the limit on the number of this user's processes is high enough."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    found = f"{_limit(soft)} for this user"
    if soft != resource.RLIM_INFINITY and soft < 4 * _TERMINALS_EXPECTED:
        advice = "raise the limit: ulimit -u, nproc in /etc/security/limits.conf, or TasksMax="
        return problem("processes", found, advice)
    return ok("processes", found)


def utf8() -> CheckResult:
    """Check that the locale's encoding, in which programs and this command print, is UTF-8."""
    try:
        encoding = codecs.lookup(locale.getencoding()).name
    except LookupError:
        encoding = locale.getencoding()
    if encoding == "utf-8":
        return ok("locale", "UTF-8")
    name = next(
        (os.environ[key] for key in ("LC_ALL", "LC_CTYPE", "LANG") if key in os.environ), ""
    )
    return problem(
        "locale",
        f"{summary_line(name) or 'none'} ({summary_line(encoding)})",
        "choose one of UTF-8: LANG=C.UTF-8",
    )


def term() -> CheckResult:
    """Check that the system has a terminfo entry for TERM."""
    name = os.environ.get("TERM", "")
    if name in ("", "dumb"):
        found = "dumb" if name else "not set"
        advice = "nothing to do unless this is a terminal: then TERM=xterm-256color"
        return missing("TERM", found, advice)
    directories = [os.environ.get("TERMINFO"), os.path.expanduser("~/.terminfo"), *_TERMINFO]
    paths = [
        f"{directory}/{sub}/{name}"
        for directory in directories
        if directory
        for sub in _terminfo_subdirectories(name)
    ]
    if "/" in name or not any(os.path.exists(path) for path in paths):
        advice = "install the terminfo entry (Debian: ncurses-term), or use TERM=xterm-256color"
        return problem("TERM", f"{summary_line(name)}: this system does not know it", advice)
    return ok("TERM", summary_line(name))


_TERMINFO: Final = (
    "/etc/terminfo",
    "/lib/terminfo",
    "/usr/share/terminfo",
    "/usr/lib/terminfo",
    "/usr/local/share/terminfo",
)


def _terminfo_subdirectories(name: str) -> tuple[str, str]:
    return name[0], f"{ord(name[0]):x}"


def _limit(value: int) -> str:
    return "no limit" if value == resource.RLIM_INFINITY else str(value)


def _read_int(path: str) -> int:
    with open(path) as file:
        return int(file.read())
