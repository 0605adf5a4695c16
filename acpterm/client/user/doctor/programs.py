"""Programs that acpterm uses, the shell and systemd: do they run."""

import os
import shutil
import subprocess
import sys
from typing import Final, NamedTuple

import trio

from acpterm.client.sanitize import one_line
from acpterm.client.user.doctor.check import CheckResult, missing, ok, problem
from acpterm.client.user.format import summary_line
from acpterm.config import Settings

# Seconds that a program has to answer.
TIMEOUT_S: Final = 2.0
_TIMED_OUT_STATUS: Final = 124
# What a shell is told to exit with.
_EXIT_STATUS: Final = 7
# Characters of what it says of itself.
_LINE_CHARACTERS_MAX: Final = 80


class ProgramResult(NamedTuple):
    """What became of a program: its exit status, and what it printed, the first line of it."""

    status: int
    line: str
    text: str


async def run(*command: str, stderr: bool = True) -> ProgramResult:
    """Run a program for a moment. Raises `OSError` if it cannot be started."""
    with trio.move_on_after(TIMEOUT_S):
        done = await trio.run_process(
            command,
            capture_stdout=True,
            stderr=subprocess.STDOUT if stderr else subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            check=False,
            deliver_cancel=_kill,
            start_new_session=True,
        )
        text = done.stdout.decode(errors="replace")
        first = next((one for one in text.splitlines() if one.strip()), "")
        return ProgramResult(done.returncode, one_line(first, _LINE_CHARACTERS_MAX), text)
    return ProgramResult(_TIMED_OUT_STATUS, f"no answer within {TIMEOUT_S:g} s", "")


async def _kill(process: trio.Process) -> None:
    process.kill()


async def shell(settings: Settings) -> CheckResult:
    """Whether the shell that is given shell text can be run, and takes it."""
    path = settings.shell
    advice = "choose a POSIX shell that is there: the setting shell"
    try:
        said = await run(path, "-c", f"exit {_EXIT_STATUS}")
    except OSError as error:
        found = f"no shell text can be run: {summary_line(path)}: {error.strerror}"
        return problem("shell", found, advice)
    if said.status != _EXIT_STATUS:
        how = said.line or f"status {said.status}"
        return problem(
            "shell", f"{summary_line(path)} does not do exit {_EXIT_STATUS}: {how}", advice
        )
    return ok("shell", summary_line(path))


_UNITS: Final = (
    "copy systemd/acpterm.socket and acpterm.service to ~/.config/systemd/user, then "
    "systemctl --user daemon-reload && systemctl --user enable --now acpterm.socket"
)


async def systemd() -> list[CheckResult]:
    """Whether the user's systemd runs, and starts the daemon."""
    name, socket = "systemd", "acpterm.socket"
    start = "the daemon is started when it is needed, without systemd"
    systemctl = shutil.which("systemctl") if sys.platform == "linux" else None
    if systemctl is None:
        return [missing(name, "there is no systemctl", f"nothing to do: {start}")]
    said = await run("systemctl", "--user", "is-system-running")
    state = said.line
    if state not in ("running", "degraded", "starting", "initializing", "maintenance"):
        advice = f"{start}; for one that outlives logins: loginctl enable-linger"
        if not os.environ.get("XDG_RUNTIME_DIR"):
            advice = f"{start}; set XDG_RUNTIME_DIR=/run/user/{os.getuid()} if it should run"
        return [missing(name, f"your user manager does not run: {state or said.status}", advice)]
    shown = await run("systemctl", "--user", "show", socket, "-p", "LoadState,ActiveState")
    words = dict(one.split("=", 1) for one in shown.text.splitlines() if "=" in one)
    unit = f"{words.get('LoadState', '?')}, {words.get('ActiveState', '?')}"
    found = ok(name, f"your user manager is {state}")
    if words.get("LoadState") == "not-found":
        return [found, missing(socket, "is not installed", f"{start}; to have it: {_UNITS}")]
    if words.get("ActiveState") == "active":
        return [found, ok(socket, "is active")]
    advice = f"systemctl --user status {socket}; systemctl --user enable --now {socket}"
    return [found, problem(socket, one_line(unit, _LINE_CHARACTERS_MAX), advice)]
