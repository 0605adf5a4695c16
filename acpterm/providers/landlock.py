"""The provider `landlock`: programs are restricted by Landlock and seccomp, without namespaces.

It is for systems that forbid user namespaces. `landlock_exec` restricts the child before it
executes the program. The rules for programs are:

- They can read the contents of all files, except secrets, acpterm's files, /tmp, /run and most of
  /dev. They can list the *names* of all files.
- They can write only to the workspace, and to a private directory that `TMPDIR` names; `clean_up`
  removes that directory. /tmp itself and /dev/shm are not accessible.
- Protected names that exist in the workspace are read-only (see `workspace`). Landlock cannot
  allow a directory with the exception of one path in it. So in a directory with a protected name
  (the top of the workspace, and `.git`), nothing can be created, removed or renamed. Other files
  there can be changed in place, and the other subdirectories are not restricted. If no protected
  name exists, everything in the workspace is writable, and protected names can be created.
- Without `Command.network` they can create no sockets. With `Command.network` they can create all
  sockets but Unix sockets. In both cases they can create connected pairs (socketpair(2)), but not
  of datagram sockets.
- They can send signals to, and trace, only processes of the terminal.
- They have no capabilities and no new privileges.

These are not restricted: programs see other processes and their command lines in /proc; they can
change the permissions, times and extended attributes of the user's own files anywhere (chmod(2));
and they can read a secret that is created later, unless its directory already had another secret
in it or below. Programs cannot open new pseudo-terminals, as script(1) and tmux do.

`remove_tree` removes the private directory, in which the tree may be deeper than the recursion
limit, paths longer than the kernel accepts, and directories without permissions. So each
subdirectory is moved to the top directory, and emptied there. Then no path has more than two
components, and three file descriptors are enough.
"""

import contextlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import Final

from acpterm.providers import landlock_exec, off_loop
from acpterm.providers.environment import sandbox_environment, split_environment
from acpterm.providers.provider import Command, Prepared, ProviderError
from acpterm.providers.sandbox_trial import Trial, file_identity, run_trial, trial_directory
from acpterm.providers.secret_paths import existing, is_below, outermost, secret_paths
from acpterm.providers.workspace import Workspace

_PREFIX: Final = "acpterm-sandbox-"
_TOKEN: Final = re.compile(rf"/(.*/)?{_PREFIX}[a-z0-9_]+")
_TOKEN_MAX: Final = 256
# Directories that are hidden with their contents, except for the paths in `_READABLE`, which
# programs need.
_WITHHELD: Final = ("/tmp", "/var/tmp", "/run", "/var/run", "/dev")  # noqa: S108
_READABLE: Final = (
    *("/etc/resolv.conf", "/run/current-system", "/run/booted-system", "/run/opengl-driver"),
)

_DIRECTORY: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Only Linux has O_PATH, and only there do sandboxes exist.
_PATH: Final[int] = getattr(os, "O_PATH", 0)
_NAME_BYTES: Final = 16


def remove_tree(path: str) -> None:
    """Remove a directory with its contents. Does not raise: what cannot be removed is left."""
    with contextlib.suppress(OSError):
        top = _open(path, None)
        try:
            names = _emptied(top, top)
            while names:
                name = names.pop()
                # Continue with the other directories if this one cannot be removed.
                with contextlib.suppress(OSError):
                    directory = _open(name, top)
                    try:
                        names += _emptied(directory, top)
                    finally:
                        os.close(directory)
                    os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        os.rmdir(path)


def _emptied(directory: int, top: int) -> list[str]:
    """Remove the files in `directory`, and move its subdirectories to `top`; return these."""
    found = []
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
                os.unlink(name, dir_fd=directory)
            elif directory == top:
                found.append(name)
            else:
                # The kernel moves a directory to another parent only if it is writable. Opening it
                # gives the owner this permission.
                os.close(_open(name, directory))
                fresh = os.urandom(_NAME_BYTES).hex()
                os.rename(name, fresh, src_dir_fd=directory, dst_dir_fd=top)
                found.append(fresh)
    return found


def _open(name: str, parent: int | None) -> int:
    """Give the owner of a directory all permissions, then open it."""
    place = os.open(name, _PATH | _DIRECTORY, dir_fd=parent)
    try:
        # chmod(2) by name would follow a symbolic link that has replaced the directory.
        os.chmod(f"/proc/self/fd/{place}", stat.S_IRWXU)
    finally:
        os.close(place)
    return os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=parent)


class LandlockProvider:
    """Runs commands restricted by Landlock. Implements `provider.Provider`."""

    name: Final = "landlock"

    def __init__(self) -> None:
        self._trial: Final = Trial()

    async def prepare(self, command: Command) -> Prepared:
        """Return the argv of a script that restricts itself and then executes `command`."""
        await self._trial.ensure(
            await off_loop.look_up(partial(file_identity, "landlock", sys.executable)), self._try
        )
        return await off_loop.prepare(partial(_with_tmpdir, command), _remove)

    async def clean_up(self, token: str) -> None:
        """Remove the private directory at the path `token`. Idempotent; does not raise."""
        await off_loop.clean_up(partial(_remove, token))

    async def check(self) -> str:
        """Run `true` with the restrictions; return a line that describes them."""
        await self._try()
        return (
            f"Landlock ABI {landlock_exec.abi()}: programs write only to the session's directory "
            "and TMPDIR, and create nothing beside .git; secrets are unreadable; no sockets unless "
            "the network is allowed, and no Unix sockets; not covered: names of files, other "
            "processes' command lines, chmod of the user's files"
        )

    async def _try(self) -> None:
        if (found := landlock_exec.abi()) < landlock_exec.ABI_MIN:
            raise ProviderError(
                "landlock: the sandbox cannot be set up, so nothing is run: the kernel's Landlock "
                + ("is off or missing" if found == 0 else f"has ABI {found}")
                + f", and ABI {landlock_exec.ABI_MIN} (Linux 6.12) is needed: use a newer kernel, "
                "with landlock in the kernel's lsm= list"
            )
        if not landlock_exec.is_known_machine():
            raise ProviderError(
                f"landlock: supports x86_64 and aarch64, and not {os.uname().machine}: use the "
                "provider bubblewrap"
            )
        async with trial_directory("landlock") as directory:
            prepared = await off_loop.look_up(partial(_trial_command, directory))
            await run_trial("landlock", prepared.argv, prepared.env, lambda _: "it has failed")


def _trial_command(directory: str) -> Prepared:
    path = os.path.realpath(directory)
    env = {"HOME": os.path.expanduser("~"), "PATH": os.environ.get("PATH", os.defpath)}
    command = Command(("true",), None, env, path, path, "/bin/sh")
    return _prepared(command, Workspace(path, (), (), ()), path)


def _with_tmpdir(command: Command) -> Prepared:
    """Create the private directory of a terminal, and return the terminal's prepared command."""
    workspace = Workspace.of(command.workspace)
    try:
        tmpdir = tempfile.mkdtemp(prefix=_PREFIX)
    except OSError as error:
        raise ProviderError(
            f"landlock: no directory for TMPDIR can be created in {tempfile.gettempdir()}: "
            f"{error.strerror}"
        ) from error
    if len(tmpdir) > _TOKEN_MAX:
        os.rmdir(tmpdir)
        raise ProviderError(f"landlock: {tmpdir}: is too long: set TMPDIR to a shorter path")
    try:
        return _prepared(command, workspace, tmpdir)
    except BaseException:
        os.rmdir(tmpdir)
        raise


def _remove(token: str) -> None:
    if _is_own_directory(token):
        remove_tree(token)


def _prepared(command: Command, workspace: Workspace, tmpdir: str) -> Prepared:
    hidden = outermost(
        existing([*_WITHHELD, *command.hidden])
        + [path for path in secret_paths(command.env) if path != workspace.path]
    )
    # `outermost` has dropped paths below another hidden path. But a workspace below it, such as one
    # in /tmp, is visible again, so the hidden paths in the workspace are needed too.
    inside = [
        path
        for path in [*secret_paths(command.env), *existing(command.hidden)]
        if is_below(path, workspace.path) and path != workspace.path
    ]
    env = sandbox_environment(
        command.env, [*hidden, *map(os.path.abspath, command.hidden)], tmpdir=tmpdir
    )
    outer, inner = split_environment(env)
    spec = landlock_exec.Spec(
        network=command.network,
        workspace=workspace.path,
        tmpdir=os.path.realpath(tmpdir),
        readable=existing(_READABLE),
        hidden=[*hidden, *inside],
        protected=workspace.protected,
        env=[f"{name}={value}" for name, value in inner.items()],
        argv=command.argv,
        fallback_argv=command.fallback_argv or (),
    )
    return Prepared(_argv(landlock_exec.encode(spec)), None, outer, command.cwd, tmpdir)


def _argv(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-S", os.path.abspath(landlock_exec.__file__), *words]


def _is_own_directory(path: str) -> bool:
    """Return whether `path` is a directory that `prepare` may have created."""
    if not _TOKEN.fullmatch(path):
        return False
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
