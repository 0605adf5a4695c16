"""Checks of what acpterm uses: the shell, systemd, providers, places, and packages."""

import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import Final, NamedTuple

import trio

from acpterm.commands.doctor.check import CheckResult, missing, ok, problem
from acpterm.commands.format import summary_line
from acpterm.config import Settings
from acpterm.providers.provider import ProviderError
from acpterm.providers.registry import make
from acpterm.runtime.command_line import find_shell
from acpterm.runtime.extras import BUILD_PAGE, MCP, WEB, how_to_install, page_is_built
from acpterm.runtime.sanitize import one_line

TIMEOUT_S: Final = 2.0
"""Maximum duration of a program that `run` runs, in seconds."""
# The exit status of timeout(1).
_TIMED_OUT_STATUS: Final = 124
# The status with which the configured shell is requested to exit.
_EXIT_STATUS: Final = 7
# Maximum characters of a program's output that are quoted.
_LINE_CHARACTERS_MAX: Final = 80


class ProgramResult(NamedTuple):
    """The exit status and the output of a program."""

    status: int
    line: str
    """The first line of output that is not blank."""
    text: str
    """All output."""


async def run(*command: str) -> ProgramResult:
    """Run a program, and kill it after `TIMEOUT_S`; return its exit status and its output."""
    with trio.move_on_after(TIMEOUT_S):
        done = await trio.run_process(
            command,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            check=False,
            deliver_cancel=_kill,
            start_new_session=True,
        )
        text = done.stdout.decode(errors="replace")
        first = next((line for line in text.splitlines() if line.strip()), "")
        return ProgramResult(done.returncode, one_line(first, _LINE_CHARACTERS_MAX), text)
    return ProgramResult(_TIMED_OUT_STATUS, f"no answer within {TIMEOUT_S:g} s", "")


async def _kill(process: trio.Process) -> None:
    process.kill()


async def shell(settings: Settings) -> CheckResult:
    """Check that the configured shell runs and executes shell text."""
    path = find_shell(settings.shell)
    advice = "choose a POSIX shell that is there: the setting shell"
    try:
        result = await run(path, "-c", f"exit {_EXIT_STATUS}")
    except OSError as error:
        found = f"no shell text can be run: {summary_line(path)}: {error.strerror}"
        return problem("shell", found, advice)
    if result.status != _EXIT_STATUS:
        how = result.line or f"status {result.status}"
        return problem(
            "shell", f"{summary_line(path)} does not do exit {_EXIT_STATUS}: {how}", advice
        )
    return ok("shell", summary_line(path))


_UNITS: Final = (
    "copy systemd/acpterm.socket and acpterm.service to ~/.config/systemd/user, then "
    "systemctl --user daemon-reload && systemctl --user enable --now acpterm.socket"
)


async def systemd() -> list[CheckResult]:
    """Check whether the user's systemd runs, and whether it starts the daemon."""
    name, socket = "systemd", "acpterm.socket"
    start = "the daemon is started when it is needed, without systemd"
    systemctl = shutil.which("systemctl") if sys.platform == "linux" else None
    if systemctl is None:
        return [missing(name, "there is no systemctl", f"nothing to do: {start}")]
    manager = await run("systemctl", "--user", "is-system-running")
    state = manager.line
    if state not in ("running", "degraded", "starting", "initializing", "maintenance"):
        advice = f"{start}; for one that outlives logins: loginctl enable-linger"
        if not os.environ.get("XDG_RUNTIME_DIR"):
            advice = f"{start}; set XDG_RUNTIME_DIR=/run/user/{os.getuid()} if it should run"
        return [missing(name, f"your user manager does not run: {state or manager.status}", advice)]
    unit = await run("systemctl", "--user", "show", socket, "-p", "LoadState,ActiveState")
    properties = dict(line.split("=", 1) for line in unit.text.splitlines() if "=" in line)
    load, active = properties.get("LoadState", "?"), properties.get("ActiveState", "?")
    running = ok(name, f"your user manager is {state}")
    if load == "not-found":
        return [running, missing(socket, "is not installed", f"{start}; to have it: {_UNITS}")]
    if active == "active":
        return [running, ok(socket, "is active")]
    advice = f"systemctl --user status {socket}; systemctl --user enable --now {socket}"
    return [running, problem(socket, one_line(f"{load}, {active}", _LINE_CHARACTERS_MAX), advice)]


_WEB_PACKAGES: Final = ("h11", "starlette", "wsproto")


def git() -> CheckResult:
    """Check that commands have a way back (`acpterm undo`)."""
    if shutil.which("git") is None:
        return missing("way back", "no git", "for `acpterm undo`: install the package git")
    return ok("way back", "`acpterm undo` restores what a command lost")


def web() -> CheckResult:
    """Check that the page of `acpterm open` can be served."""
    if absent := _absent(_WEB_PACKAGES):
        return missing("page", f"no {absent}", f"for `acpterm open`: {how_to_install(WEB)}")
    if not page_is_built():
        return missing("page", "it was not built", f"for `acpterm open`: {BUILD_PAGE}")
    return ok("page", "`acpterm open` shows it")


def mcp() -> CheckResult:
    """Check that the HTTP server has the MCP tools. `acpterm mcp` itself needs no extra."""
    if absent := _absent(("mcp",)):
        why = "`acpterm mcp` works; for its tools over HTTP"
        return missing("MCP", f"no {absent}", f"{why}: {how_to_install(MCP)}")
    return ok("MCP", "`acpterm mcp` has the tools, and so has the HTTP server")


def _absent(packages: tuple[str, ...]) -> str:
    # Importing the packages would take longer than all other checks.
    return ", ".join(package for package in packages if find_spec(package) is None)


async def provider(settings: Settings, name: str) -> CheckResult:
    """Check that the provider `name` works on this machine."""
    try:
        return ok(name, await make(name, image=settings.image).check())
    except ProviderError as error:
        what = summary_line(str(error))
    if name == settings.provider:
        return problem(name, what, "no terminal of an agent can be created until this works")
    return missing(name, what, "only needed to run agents' commands in it")


async def place(settings: Settings, name: str) -> CheckResult:
    """Check that the place `name` can be reached, and report how many seconds that took."""
    began = time.monotonic()
    try:
        found = await make(name, places=settings.places).check()
    except ProviderError as error:
        return problem(name, summary_line(str(error)), "no terminal runs there until this works")
    return ok(name, f"{found} ({time.monotonic() - began:.1f} s)")
