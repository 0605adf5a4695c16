"""Builds the argv that runs a command in a container of podman or docker.

Three programs run one inside the other. None of them evaluates words of the command as shell text:

1. A Python on the host (`_ON_HOST`), which runs in the terminal. It passes its own limits of open
   files and processes to the engine as options. Without these options, an engine that runs as root
   requests higher limits. If acpterm itself runs in a container, higher limits may be forbidden
   there, and nothing starts. The Python also locks the workspace's placeholders (`placeholders`);
   the locks survive exec. Then it executes the engine's `run`.
2. The engine, in the foreground. It connects the terminal with a PTY in the container.
3. A shell in the container (`_INSIDE`). It changes to the working directory, runs the command by
   `exec_script`, and exits with the status of the command: 128+n if signal n has ended it. With
   podman the shell is the container's first process and reaps orphans, so `--init`, which needs one
   more package, is not used. Docker has its own init, which is used: without it, SIGTERM would not
   be forwarded to the program.

Environment: the container gets `Command.requested`, and of the daemon's environment only the
variables in `FORWARDED`. The engine itself gets none of the request's variables: it runs on the
host, where `LD_PRELOAD` or `CONTAINERS_CONF` would execute something outside of the container. So
the values are arguments of the engine, which other users of the machine can read, as they can read
the command.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from acpterm.providers.environment import FORWARDED
from acpterm.providers.exec_script import exec_script_argv, shell_there
from acpterm.providers.provider import Command, ProviderError
from acpterm.providers.workspace import Workspace

# Arguments: the number of placeholders, and their paths; and the argv of the engine, in which `-`
# is replaced by the options for limits. The maxima are those to which the engine lowers its limits.
_ON_HOST: Final = """\
import _signal, fcntl, os, resource, sys
for number in (_signal.SIGINT, _signal.SIGPIPE, _signal.SIGXFSZ):
    _signal.signal(number, _signal.SIG_DFL)
count = int(sys.argv[1])
for path in sys.argv[2 : 2 + count]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        os.set_inheritable(fd, True)
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        sys.exit(f"acpterm: {path}: cannot be locked: {error.strerror}")
argv = sys.argv[2 + count :]
try:
    with open("/proc/sys/kernel/pid_max") as file:
        processes = min(int(file.read()), 4194304)
except OSError:
    processes = 32768
limits = []
for name, number, largest in (
    ("nproc", resource.RLIMIT_NPROC, processes),
    ("nofile", resource.RLIMIT_NOFILE, 1048576),
):
    soft, hard = (min(x if x >= 0 else largest, largest) for x in resource.getrlimit(number))
    limits.append(f"--ulimit={name}={soft}:{hard}")
place = argv.index("-")
argv[place : place + 1] = limits
try:
    os.execvp(argv[0], argv)
except OSError as error:
    print(f"acpterm: {argv[0]}: cannot be run: {error.strerror}", file=sys.stderr)
    sys.exit(126)
"""

# Arguments of the shell in the container: the working directory, and the argv to execute.
_INSIDE: Final = """\
cd -- "$1" 2>/dev/null || {
  printf 'acpterm: %s: cannot be the working directory: it is not in the container\\n' "$1" >&2
  exit 126
}
shift
"""
# Executes the argv if the shell is the first process of the container. The parentheses create a new
# process, in which SIGINT has its default action. The trap keeps the shell, which is in the same
# process group, from exiting on Ctrl-C. Messages of the shell, such as "Killed", are discarded.
_AS_INIT: Final = """\
trap : INT QUIT
exec 9>&2 2>/dev/null
(exec "$@" 2>&9 9>&-)
exit $?
"""
_BELOW_INIT: Final = 'exec "$@"\n'


class EngineSetup(NamedTuple):
    """The options that an engine needs on this machine, as a trial has found them."""

    engine: str
    """`podman` or `docker`."""
    image: str
    labels: tuple[str, ...]
    """Labels of all containers, as NAME=VALUE, or NAME alone."""
    user: str
    """The uid and the gid in the container, as UID:GID."""
    keeps_id: bool
    """Whether the option `--userns=keep-id` maps the daemon's user to its own uid inside."""
    has_cgroup: bool
    """Whether a container has its own control group; else it stays in the terminal's."""


class Mount(NamedTuple):
    """A file or directory `source` of the host, mounted at `target` in the container."""

    source: str
    target: str
    read_only: bool = False


def run_argv(setup: EngineSetup, name: str, command: Command, workspace: Workspace) -> list[str]:
    """Return the argv that runs a command in the foreground, in a new container `name`."""
    # A placeholder must exist at each of the workspace's `missing` paths that the user can create.
    environment = container_environment(command.env, command.requested)
    options = [
        "--interactive",
        "--tty",
        *base_options(setup, name, network=command.network),
        *(_mount_option(mount) for mount in workspace_mounts(command.workspace, workspace)),
        *(f"--env={key}={value}" for key, value in environment.items()),
    ]
    argv = shell_there(command.argv, command.shell)
    fallback = command.fallback_argv and shell_there(command.fallback_argv, command.shell)
    arguments = [command.cwd, *exec_script_argv("/bin/sh", argv, fallback)]
    locks = [path for path in workspace.missing if os.path.lexists(path)]
    return shell_argv(setup, options, arguments, locks)


def workspace_mounts(path: str, workspace: Workspace) -> list[Mount]:
    """Return the mounts of a workspace, at its real path and at `path`, in their order."""
    writable = [workspace.path, *workspace.pinned]
    placeholders = [missing for missing in workspace.missing if os.path.lexists(missing)]
    found = [Mount(source, source) for source in writable]
    found += [Mount(source, source, read_only=True) for source in workspace.protected]
    found += [Mount(source, source, read_only=True) for source in placeholders]
    if path == workspace.path:
        return found
    start = len(workspace.path)
    return found + [mount._replace(target=path + mount.target[start:]) for mount in found]


def shell_argv(
    setup: EngineSetup, options: Sequence[str], arguments: Sequence[str], locks: Sequence[str] = ()
) -> list[str]:
    """Return the argv that starts a container, and runs a command in it by its /bin/sh."""
    # The engine holds a read lock on each of `locks`, the placeholders, while it runs, so that no
    # clean-up removes them.
    script = _INSIDE + (_BELOW_INIT if setup.engine == "docker" else _AS_INIT)
    return [
        sys.executable,
        # Ignore the user's settings of Python, and skip the module site: that saves two thirds of
        # the start's time.
        "-ISc",
        _ON_HOST,
        str(len(locks)),
        *locks,
        setup.engine,
        *global_options(setup.engine),
        "run",
        "-",
        *options,
        "--entrypoint=/bin/sh",
        setup.image,
        "-c",
        script,
        "acpterm",
        *arguments,
    ]


def base_options(setup: EngineSetup, name: str, *, network: bool) -> list[str]:
    """Return the options of `run` that isolate a container, whatever its command."""
    options = [
        "--rm",
        f"--name={name}",
        *(f"--label={label}" for label in setup.labels),
        "--pull=never",
        f"--user={setup.user}",
        "--workdir=/",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--read-only",
        # All options are given, since the defaults of podman and docker differ. With `exec`,
        # programs in /tmp can be executed.
        "--tmpfs=/tmp:rw,exec,nosuid,nodev,mode=1777",
        "--log-driver=none",
    ]
    if not network:
        options.append("--network=none")
    if os.path.exists("/sys/fs/selinux/enforce"):
        # Otherwise SELinux denies access to the workspace, unless all its files are relabelled.
        options.append("--security-opt=label=disable")
    if setup.engine == "docker":
        # Docker's keys for detaching cannot be disabled: use a sequence that no user types.
        options += ["--init", "--detach-keys=ctrl-],ctrl-^,ctrl-_"]
    else:
        options += ["--detach-keys=", "--http-proxy=false"]
        if not setup.has_cgroup:
            options.append("--cgroups=disabled")
        if setup.keeps_id:
            options.append("--userns=keep-id")
    return options


def global_options(engine: str) -> list[str]:
    """Return the options before `run`, which suppress warnings in the terminal."""
    return ["--log-level=error"] if engine == "podman" else []


def container_environment(env: Mapping[str, str], requested: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in a container; HOME is the private /tmp unless requested."""
    forwarded = {name: value for name, value in env.items() if FORWARDED.fullmatch(name)}
    return {"HOME": "/tmp", **forwarded, **requested}  # noqa: S108  it is the container's own


def _mount_option(mount: Mount) -> str:
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    return f"--mount={_csv([*fields, 'readonly'] if mount.read_only else fields)}"


def _csv(fields: Iterable[str]) -> str:
    """Return fields as the engines parse them. Raises `ProviderError` for a line break."""
    quoted = []
    for field in fields:
        if any(character in field for character in "\r\n"):
            msg = f"{field.partition('=')[2]!r} cannot be mounted in a container: rename it"
            raise ProviderError(msg)
        if any(character in field for character in ',"'):
            field = '"' + field.replace('"', '""') + '"'  # noqa: PLW2901  quoted in place
        quoted.append(field)
    return ",".join(quoted)
