"""Programs that acpterm can work with, and systemd: are they there, and do they run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

import trio

from acpterm.client.person.doctor.finding import Finding, missing, ok, problem
from acpterm.client.person.listing import line
from acpterm.client.plain import in_a_line
from acpterm.config import Settings

# Seconds that a program has to answer.
PATIENCE: Final = 2.0
_TIMED_OUT: Final = 124
# What a shell is told to exit with.
_NUMBER: Final = 7
# Characters of what it says of itself.
_MOST: Final = 80


class Said(NamedTuple):
    """What became of a program: its exit status, and what it printed, the first line of it."""

    status: int
    line: str
    text: str


async def run(*command: str, stderr: bool = True) -> Said:
    """Run a program for a moment. Raises `OSError` if it cannot be started."""
    with trio.move_on_after(PATIENCE):
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
        return Said(done.returncode, in_a_line(first, _MOST), text)
    return Said(_TIMED_OUT, f"no answer within {PATIENCE:g} s", "")


async def _kill(process: trio.Process) -> None:
    process.kill()


async def _version(name: str, command: Sequence[str], *, use: str, package: str) -> Finding:
    """Whether a program is there and says its version; `use` is what it is good for."""
    if shutil.which(command[0]) is None:
        return missing(name, f"there is no {command[0]}: {use}", package)
    said = await run(*command)
    if said.status == 0:
        return ok(name, said.line or "there")
    how = f"{' '.join(command)} fails with {said.status}: {said.line}"
    return problem(name, how, f"see what {' '.join(command)} says; {use}")


async def shell(settings: Settings) -> Finding:
    """Whether the shell that is given shell text can be run, and takes it."""
    path = settings.shell
    advice = "choose a POSIX shell that is there: the setting shell"
    try:
        said = await run(path, "-c", f"exit {_NUMBER}")
    except OSError as error:
        found = f"no shell text can be run: {line(path)}: {error.strerror}"
        return problem("shell", found, advice)
    if said.status != _NUMBER:
        how = said.line or f"status {said.status}"
        return problem("shell", f"{line(path)} does not do exit {_NUMBER}: {how}", advice)
    return ok("shell", line(path))


async def bubblewrap() -> Finding:
    """Whether bwrap is there, and may make the namespaces that it needs."""
    use = "for terminals in a sandbox, which this version has not"
    if shutil.which("bwrap") is None:
        return missing("bubblewrap", f"there is no bwrap: {use}", "apt install bubblewrap")
    command = ("bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true")
    said = await run(*command)
    if said.status == 0:
        return ok("bubblewrap", "runs")
    return problem(
        "bubblewrap",
        f"does not run: {said.line or f'status {said.status}'}",
        "allow unprivileged user namespaces: sysctl user.max_user_namespaces, "
        "kernel.apparmor_restrict_unprivileged_userns=0, or kernel.unprivileged_userns_clone=1",
    )


async def podman() -> Finding:
    """Whether containers can be had."""
    use = "for terminals in containers, which this version has not"
    return await _version("podman", ("podman", "--version"), use=use, package="apt install podman")


async def ssh() -> Finding:
    """Whether other machines can be reached."""
    use = "for terminals on other machines, which this version has not"
    return await _version("ssh", ("ssh", "-V"), use=use, package="apt install openssh-client")


async def slurm() -> Finding:
    """Whether a cluster's scheduler can be asked."""
    use = "for terminals on a Slurm cluster, which this version has not"
    advice = "use a machine of the cluster, or apt install slurm-client"
    return await _version("slurm", ("srun", "--version"), use=use, package=advice)


async def kubectl() -> Finding:
    """Whether a Kubernetes cluster can be asked."""
    use = "for terminals in pods, which this version has not"
    advice = "see https://kubernetes.io/docs/tasks/tools"
    return await _version("kubectl", ("kubectl", "version", "--client"), use=use, package=advice)


def asciinema() -> Finding:
    """Whether recordings can be published; acpterm plays them itself.

    It is not run: whatever it is asked, it leaves a file in the user's settings.
    """
    name = "asciinema"
    if found := shutil.which(name):
        return ok(name, line(found))
    use = "for publishing recordings; acpterm replay plays them"
    return missing(name, f"there is none: {use}", "apt install asciinema")


async def tmux() -> Finding:
    """Whether there is tmux, which acpterm does without."""
    use = "not needed, good to look at several terminals at once"
    return await _version("tmux", ("tmux", "-V"), use=use, package="apt install tmux")


_UNITS: Final = (
    "copy systemd/acpterm.socket and acpterm.service to ~/.config/systemd/user, then "
    "systemctl --user daemon-reload && systemctl --user enable --now acpterm.socket"
)


async def systemd() -> list[Finding]:
    """Whether the user's systemd runs, and starts the daemon."""
    name, socket = "systemd", "acpterm.socket"
    start = "the daemon is started when it is needed, without systemd"
    if sys.platform != "linux" or shutil.which("systemctl") is None:
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
    return [found, problem(socket, in_a_line(unit, _MOST), advice)]
