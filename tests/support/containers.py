"""A podman for tests, with separate storage, and an image of a static busybox.

podman needs control groups of version 2 on /sys/fs/cgroup, and writes to /run and /dev/shm. So it
runs in a mount namespace, which a script named `podman` enters. All mounts end with the namespace,
and the namespace ends with this process. Needs root, and the Debian packages podman, crun and
busybox-static.
"""

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from acpterm.providers.provider import Command, Provider
from acpterm.pty.program import Program
from acpterm.terminal.pool import Pool
from acpterm.terminal.spec import TerminalSpec
from acpterm.terminal.status import EndedBy, ExitStatus
from acpterm.terminal.terminal import Terminal
from tests.support.pools import running_pool

IMAGE = "localhost/busybox:latest"
REQUIRED = ("podman", "crun", "busybox", "unshare", "nsenter")

JOB = "trap 'echo continued' CONT; echo begun; while :; do read -r line; done"
"""A shell script that prints when it has become the foreground: at its start, after each stop.

It has no children: a shell that is stopped while it starts one (vfork) does not seem to be stopped.
"""

_NAMESPACE = """\
set -e
for directory in /run /dev/shm /var/lib/containers; do
  [ ! -d "$directory" ] || mount -t tmpfs tmpfs "$directory"
done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo ready
exec cat
"""


class Started(NamedTuple):
    """A terminal in which a provider runs a command, and the token for the clean-up."""

    terminal: Terminal
    token: str


def missing() -> str | None:
    """Return why this machine cannot run the containers of tests; None if it can."""
    if os.geteuid() != 0:
        return "the containers of tests need root"
    absent = [name for name in REQUIRED if shutil.which(name) is None]
    packages = "Debian packages: podman crun busybox-static util-linux"
    return f"{', '.join(absent)} missing ({packages})" if absent else None


@contextmanager
def podman(directory: Path) -> Iterator[dict[str, str]]:
    """Set up podman for the block; yield the environment variables that select this podman.

    `directory` is an empty directory. At the end of the block, all containers are removed.
    """
    real = shutil.which("podman")
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", _NAMESPACE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == b"ready\n"
            script = directory / "bin" / "podman"
            script.parent.mkdir()
            enter = f"exec nsenter --mount=/proc/{holder.pid}/ns/mnt -- {real}"
            script.write_text(f'#!/bin/sh\n{enter} "$@"\n')
            script.chmod(0o755)
            settings = directory / "storage.conf"
            # The namespace has its own /run. Longer paths are too long for the sockets of conmon.
            settings.write_text(
                '[storage]\ndriver = "overlay"\n'
                'graphroot = "/run/graph"\nrunroot = "/run/containers"\n'
            )
            variables = {
                "PATH": f"{script.parent}:{os.environ['PATH']}",
                "CONTAINERS_STORAGE_CONF": str(settings),
            }
            env = {**os.environ, **variables}
            image = directory / "image.tar"
            image.write_bytes(_busybox_image())
            subprocess.run(["podman", "import", "-q", image, IMAGE], env=env, check=True)
            yield variables
            subprocess.run(["podman", "rm", "-f", "-a", "-t", "0"], env=env, check=False)
        finally:
            holder.stdin.close()


def _busybox_image() -> bytes:
    """Return a tar of a root file system with busybox; its programs are links to busybox."""
    binary = shutil.which("busybox")
    assert binary is not None
    listed = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in ("bin", "dev", "etc", "proc", "run", "sys", "tmp", "var", "var/tmp"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        tar.add(binary, "bin/busybox")
        for name in listed.stdout.split():
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            if name != "busybox":
                tar.addfile(entry)
    return file.getvalue()


def command(workspace: Path, *argv: str, **more: Any) -> Command:
    """Return a command for a provider, in the directory `workspace`."""
    values: dict[str, Any] = {
        "argv": argv,
        "fallback_argv": None,
        "env": {**os.environ, "TERM": "xterm-256color"},
        "cwd": str(workspace),
        "workspace": str(workspace),
        "shell": "/bin/sh",
        **more,
    }
    return Command(**values)


def shell(workspace: Path, line: str, **more: Any) -> Command:
    """Return a shell line as a command, in the directory `workspace`."""
    return command(workspace, "/bin/sh", "-c", line, **more)


async def start(provider: Provider, pool: Pool, command: Command, **spec: Any) -> Started:
    """Start a command of a provider on a terminal; `spec` are fields of `TerminalSpec`."""
    prepared = await provider.prepare(command)
    program = Program(
        prepared.argv, prepared.env, prepared.cwd, 0o22, fallback_argv=prepared.fallback_argv
    )
    terminal = await pool.create(program, TerminalSpec(**spec))
    assert prepared.token is not None
    return Started(terminal, prepared.token)


async def run(provider: Provider, command: Command, **spec: Any) -> tuple[ExitStatus, str]:
    """Run a command of a provider to its end; return its exit status, and its output.

    `spec` are fields of `TerminalSpec`.
    """
    async with running_pool() as pool:
        terminal, token = await start(provider, pool, command, **spec)
        status = await terminal.wait_exited()
        text = terminal.text.text()
        pool.release(terminal, EndedBy.AGENT)
        await terminal.wait_closed()
        await provider.clean_up(token)
    return status, text


def containers() -> list[str]:
    """Return the names of all containers of the podman in this process's environment."""
    listed = ["podman", "ps", "--all", "--format={{.Names}}"]
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
