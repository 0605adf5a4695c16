"""Builds the argv that runs a command in a sandbox of bubblewrap: the options of bwrap(1).

Mounts are made in this order, since later ones cover earlier ones: hidden paths outside the
workspace, the workspace, hidden paths inside it, pinned directories, protected names. `workspace`
explains the last two.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import acpterm
from acpterm.providers.environment import sandbox_environment, split_environment
from acpterm.providers.exec_script import exec_script_argv
from acpterm.providers.provider import Command, Prepared, ProviderError
from acpterm.providers.secret_paths import (
    existing,
    is_below,
    listening_sockets,
    outermost,
    secret_paths,
)
from acpterm.providers.workspace import Workspace, is_placeholder

_TMP: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  the sandbox's own
_RUN: Final = ("/run", "/var/run")
# Paths below /run that programs need: with NixOS, these lead to the files of installed programs.
_RUN_KEPT: Final = ("/run/current-system", "/run/booted-system", "/run/opengl-driver")
# `core_pattern` and others in /proc/sys make the kernel execute a program outside the sandbox.
_KERNEL_FILES: Final = (
    *("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/mtrr"),
    *("/proc/acpi", "/proc/scsi", "/proc/driver", "/proc/tty", "/proc/asound"),
)
_RESOLV_CONF: Final = "/etc/resolv.conf"
_IGNORED: Final = "INT,QUIT,TERM,USR1,USR2,ALRM,TSTP,TTIN,TTOU"
PACKAGE: Final = "install the package bubblewrap (Debian, Ubuntu: apt-get install bubblewrap)"
"""The advice to the user if bwrap does not exist."""


class Tools(NamedTuple):
    """The paths of the programs that start a sandbox: bwrap(1) and env(1)."""

    bwrap: str
    env: str

    @classmethod
    def find(cls) -> "Tools":
        """Find both programs on the PATH. Raises `ProviderError` if one of them does not exist."""
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise ProviderError(f"bubblewrap: there is no program bwrap: {PACKAGE}")
        env = shutil.which("env")
        if env is None:
            raise ProviderError(
                "bubblewrap: there is no program env: install the package coreutils"
            )
        return cls(os.path.realpath(bwrap), env)


def prepared_command(
    command: Command, tools: Tools, workspace: Workspace, placeholders: Sequence[str]
) -> Prepared:
    """Return the argv and environment with which bwrap runs `command`."""
    run = existing(_RUN)
    private = outermost([*existing(_TMP), *run, "/dev", "/proc"])
    hidden = [
        path
        for path in outermost(
            [*secret_paths(command.env), *existing(command.hidden), *listening_sockets()]
        )
        if is_below(path, workspace.path) or not any(is_below(path, one) for one in private)
    ]
    _check_hidden(workspace, hidden)
    inside = [path for path in hidden if is_below(path, workspace.path)]
    outside = [path for path in hidden if not is_below(path, workspace.path)]
    env = sandbox_environment(
        command.env, [*private, *hidden, *map(os.path.abspath, command.hidden)], tmpdir=_TMP[0]
    )
    outer, inner = split_environment(env)
    argv = [
        *(tools.env, f"--ignore-signal={_IGNORED}", tools.bwrap),
        *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc"),
        *("--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL"),
        *(() if command.network else ("--unshare-net",)),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *_kernel_files(),
        *_private_directories(run),
        *_hide(outside),
        *("--bind", workspace.path, workspace.path),
        *_hide(inside),
        *_home(command.env, private),
        *(word for path in workspace.pinned for word in ("--bind", path, path)),
        *_protect(workspace, placeholders),
        *(word for variable in inner.items() for word in ("--setenv", *variable)),
        *("--chdir", _directory(command.cwd, private), "--"),
        *(tools.env, f"--default-signal={_IGNORED}"),
        *exec_script_argv(command.shell, command.argv, command.fallback_argv),
    ]
    return Prepared(argv, None, outer, command.cwd)


def trial_command(tools: Tools, directory: str) -> Prepared:
    """Return the prepared command that runs `true` in a sandbox with the workspace `directory`."""
    workspace = Workspace(os.path.realpath(directory), (), (), ())
    env = {"HOME": os.path.expanduser("~"), "PATH": os.environ.get("PATH", os.defpath)}
    command = Command(("true",), None, env, workspace.path, workspace.path, "/bin/sh")
    return prepared_command(command, tools, workspace, ())


def _check_hidden(workspace: Workspace, hidden: Iterable[str]) -> None:
    if workspace.path in hidden:
        raise ProviderError(
            f"{workspace.path}: holds secrets, which a sandbox hides: use the directory of a "
            "project as the session's directory"
        )


def _kernel_files() -> Iterator[str]:
    # Root in the sandbox has no capabilities, but owns the kernel's files in /proc.
    if os.geteuid() == 0:
        for path in existing(_KERNEL_FILES):
            yield from ("--ro-bind", path, path)


def _private_directories(run: Iterable[str]) -> Iterator[str]:
    for path in outermost(existing(_TMP)):
        # /dev/shm is in the private /dev already.
        if not is_below(path, "/dev"):
            yield from ("--perms", "1777", "--tmpfs", path)
    for path in outermost(run):
        yield from ("--perms", "0555", "--tmpfs", path)
    for path in (*_RUN_KEPT, os.path.realpath(_RESOLV_CONF)):
        if any(is_below(path, one) for one in run) and os.path.exists(path):
            yield from ("--ro-bind", path, path)


def _hide(paths: Iterable[str]) -> Iterator[str]:
    # A file system in memory is mounted in a tenth of the time of a bind mount, and bwrap can
    # create the mount point of the workspace in it.
    empty = os.path.join(os.path.dirname(os.path.realpath(acpterm.__file__)), "py.typed")
    for path in paths:
        if os.path.isdir(path):
            yield from ("--perms", "0555", "--tmpfs", path)
        else:
            yield from ("--ro-bind", empty, path)


def _home(env: Mapping[str, str], private: Iterable[str]) -> Iterator[str]:
    """Yield the options that create the directory `HOME` of `env`, if it is in a `private` one."""
    home = env.get("HOME", "")
    if os.path.isabs(home) and any(is_below(home, one) for one in private):
        yield from ("--dir", home)


def _protect(workspace: Workspace, placeholders: Iterable[str]) -> Iterator[str]:
    """Yield the options that make the protected names and the `placeholders` read-only."""
    # While the sandbox runs, it locks the workspace, so that no clean-up removes the placeholders.
    uses_placeholders = False
    for path in (*workspace.protected, *placeholders):
        uses_placeholders |= is_placeholder(path)
        if is_placeholder(path) and os.path.isdir(path):
            yield from ("--perms", "0555", "--tmpfs", path)
        else:
            yield from ("--ro-bind", path, path)
    if uses_placeholders:
        yield from ("--lock-file", workspace.path)


def _directory(cwd: str, private: Iterable[str]) -> str:
    """Return `cwd`, or its real path if a `private` directory hides `cwd`."""
    # They differ if a symbolic link in such a directory leads elsewhere.
    return os.path.realpath(cwd) if any(is_below(cwd, one) for one in private) else cwd
