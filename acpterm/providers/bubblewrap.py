"""The provider `bubblewrap`: programs run in namespaces of their own (bwrap(1)).

The rules for programs in the sandbox are:

- They can read all files of the system, except secrets, sockets and acpterm's own files: these are
  hidden.
- They can write only to the workspace, except for the protected names in it (`workspace`), and to
  private directories in place of /tmp, /var/tmp and /dev/shm, which end with the sandbox.
- They have no network, and so no abstract Unix sockets, unless `Command.network` is set.
- They have their own namespaces of users, processes, IPC and host names, no capabilities and no new
  privileges, and they cannot create user namespaces.
- /dev has the harmless devices and its own pseudo-terminals. The program's terminal is /dev/console
  there, as tty(1) prints; the other terminals of the user are missing.

Seen from outside, a terminal has these processes: bwrap, which is the session's leader and reports
the exit status; the sandbox's process 1, which is also bwrap; and the programs. The first bwrap
exits when the program exits. Process 1 reaps orphans, and exits after the last process, so
background processes survive the program. acpterm kills them from outside, as for other terminals.
bwrap is in the foreground process group with the program. It ignores the signals that users send,
since it would otherwise end before its program. It does not ignore SIGHUP, which the session gets
when its terminal is closed.

Exit status: a program that is ended by signal n is reported as exit code 128+n. If the sandbox
cannot be set up, bwrap prints why and exits with 1, and the program has not run.

`prepare` first runs a trial of the sandbox (`sandbox_trial`). A success is remembered for 60 s,
unless the file of bwrap changes; a failure is not remembered.

The argv has the mounts in this order, since later ones cover earlier ones: hidden paths outside the
workspace, the workspace, hidden paths inside it, pinned directories, protected names. `workspace`
explains the last two.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import acpterm
from acpterm.providers import off_loop
from acpterm.providers.environment import sandbox_environment, split_environment
from acpterm.providers.exec_script import exec_script_argv
from acpterm.providers.placeholders import Placeholders
from acpterm.providers.provider import Command, Prepared, ProviderError
from acpterm.providers.sandbox_trial import Trial, file_identity, run_trial, trial_directory
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


def _find_tools() -> tuple[Tools, object]:
    """Return the paths of bwrap and env, and their identity, the key for `Trial.ensure`."""
    tools = Tools.find()
    return tools, file_identity("bubblewrap", *tools)


class BubblewrapProvider:
    """Runs commands in a sandbox of bubblewrap. Implements `provider.Provider`."""

    name: Final = "bubblewrap"

    def __init__(self, placeholders: Placeholders | None = None) -> None:
        self._placeholders: Final = placeholders or Placeholders()
        self._trial: Final = Trial()

    async def prepare(self, command: Command) -> Prepared:
        """Return the argv and environment with which bwrap runs `command` in a sandbox."""
        tools, identity = await off_loop.look_up(_find_tools)
        await self._trial.ensure(identity, lambda: self._try(tools))
        return await off_loop.prepare(
            partial(self._protected, command, tools), self._placeholders.remove
        )

    def _protected(self, command: Command, tools: Tools) -> Prepared:
        """Create the placeholders in the workspace of `command`; return the prepared command."""
        workspace, token, placeholders = self._placeholders.protect(command.workspace)
        try:
            return prepared_command(command, tools, workspace, placeholders)._replace(token=token)
        except BaseException:
            self._placeholders.remove(token)
            raise

    async def clean_up(self, token: str) -> None:
        """Remove the placeholders of a sandbox. Idempotent; does not raise."""
        await off_loop.clean_up(partial(self._placeholders.remove, token))

    async def check(self) -> str:
        """Run `true` in a sandbox, always; return a line that describes the restrictions."""
        tools, _ = await off_loop.look_up(_find_tools)
        version = await self._try(tools)
        return (
            f"{version}: programs write only to the session's directory and a private /tmp; "
            "secrets, sockets and other processes are hidden; the network is off unless allowed"
        )

    async def _try(self, tools: Tools) -> str:
        """Run `true` in a sandbox with an empty workspace; return bwrap's version."""
        async with trial_directory("bubblewrap") as directory:
            prepare = partial(trial_command, tools, directory)
            prepared = await off_loop.look_up(prepare)
            cause = partial(_cause, bwrap=tools.bwrap)
            for attempts_left in 2, 1, 0:
                try:
                    await run_trial("bubblewrap", prepared.argv, prepared.env, cause)
                    break
                except ProviderError:
                    # bwrap cannot hide a socket that has been removed since it was found.
                    failed, prepared = prepared, await off_loop.look_up(prepare)
                    if not attempts_left or set(failed.argv) <= set(prepared.argv):
                        raise
        version = [tools.bwrap, "--version"]
        return await run_trial("bubblewrap", version, prepared.env, lambda _: PACKAGE)


def _cause(text: str, bwrap: str) -> str:
    """Return why bwrap has failed with the error output `text`, and what the user can do."""
    if _is_set("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"):
        return (
            "AppArmor forbids user namespaces (Ubuntu): add a profile for "
            f"{bwrap} with the rule userns, or set "
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if _is_set("/proc/sys/kernel/unprivileged_userns_clone", "0"):
        return "user namespaces are off: set sysctl kernel.unprivileged_userns_clone=1"
    if _is_set("/proc/sys/user/max_user_namespaces", "0") or "No space left" in text:
        return "no user namespace is left: raise sysctl user.max_user_namespaces"
    if "disable-userns" in text or "Unknown option" in text:
        return "bubblewrap is older than 0.8.0: install a newer one"
    if "invalid option" in text or "unrecognized option" in text or "ignore-signal" in text:
        return "env is not that of GNU coreutils 8.31 or newer: install the package coreutils"
    return (
        "user namespaces are forbidden here, as in many containers: allow them, or use the "
        "provider landlock, or select the provider local to run without a sandbox"
    )


def _is_set(path: str, value: str = "1") -> bool:
    try:
        with open(path) as file:
            return file.read().strip() == value
    except OSError:
        return False
