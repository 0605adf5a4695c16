"""The argv that runs a command in a container.

Three programs are involved; none of them interprets what the caller passes:

1. A shell on the host, which runs in the terminal (`_ON_HOST`). It passes its own limits of open
   files and processes to the engine, and executes the engine's `run`. Without these options an
   engine of root requests limits that a container manager may forbid, and nothing starts.
2. The engine, in the foreground. It connects the terminal with a PTY in the container.
3. A shell in the container, as its first process (`_INSIDE`). It changes to the working directory,
   selects the command or the fallback, runs it, and exits with its status: 127 if the program does
   not exist, 126 if it cannot be executed, and 128+n if signal n has ended it. While it waits it
   also reaps orphans, so the engine's `--init`, which needs one more package, is not used. Docker
   has its own init, which is necessary there: only an init forwards SIGTERM to the program.

Environment: the container gets the variables of the request, and of the daemon's environment only
those in `INHERITED`. The engine itself gets none of the request's variables: it runs on the host,
where `LD_PRELOAD` or `CONTAINERS_CONF` would execute something outside of the container. So the
values are arguments of the engine, which other users of the machine can read, like the command.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from acpterm.providers.protected import Protected
from acpterm.providers.provider import Command, ProviderError

INHERITED: Final = re.compile(
    r"TERM|COLORTERM|LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR(?:_FORCE)?"
    r"|[A-Z_]*PAGER|LESS"
)
"""The variables of the daemon's environment that a container gets, if the request has none."""

# Arguments: the largest number of processes that may be requested; the engine and its `run`, as
# words; and the other arguments of `run`. The engine itself lowers its limits to these maxima.
_ON_HOST: Final = """\
limits=
while read -r a b c d e f; do
  case "$a $b $c" in
    "Max processes "*) soft=$c hard=$d max=$1 name=nproc ;;
    "Max open files") soft=$d hard=$e max=1048576 name=nofile ;;
    *) continue ;;
  esac
  if [ "$hard" = unlimited ] || [ "$hard" -gt "$max" ]; then hard=$max; fi
  if [ "$soft" = unlimited ] || [ "$soft" -gt "$hard" ]; then soft=$hard; fi
  limits="$limits --ulimit=$name=$soft:$hard"
done 2>/dev/null </proc/self/limits
engine=$2
shift 2
exec $engine $limits "$@"
"""

# Arguments: the working directory; the shell of the settings; the numbers of words of the command
# and of the fallback; and these words. A command in parentheses is never a builtin of the shell.
# The shell's own messages, such as "Killed", are discarded.
_INSIDE: Final = """\
cd -- "$1" 2>/dev/null || {
  printf 'acpterm: %s: cannot be the working directory: it is not in the container\\n' "$1" >&2
  exit 126
}
shell=$2 count=$3 others=$4
shift 4
if [ "$others" != 0 ]; then
  case $(command -v -- "$1") in
    */*)
      while [ "$count" -gt 0 ]; do
        word=$1
        shift
        set -- "$@" "$word"
        count=$((count - 1))
      done
      shift "$others"
      ;;
    *) shift "$count" ;;
  esac
fi
if [ "$1" = "$shell" ] && ! command -v -- "$shell" >/dev/null; then
  shift
  set -- /bin/sh "$@"
fi
"""
_AS_INIT: Final = """\
exec 9>&2 2>/dev/null
(exec "$@" 2>&9 9>&-)
exit $?
"""
_BELOW_INIT: Final = 'exec "$@"\n'

_PID_MAX_DEFAULT: Final = 32768
_LIMIT_MAX: Final = 4194304


class Setup(NamedTuple):
    """What was found out about an engine: the options that it needs on this machine."""

    engine: str
    """`podman` or `docker`."""
    image: str
    labels: tuple[str, ...]
    """Labels of all containers, as NAME=VALUE."""
    user: str
    """The uid and the gid in the container, as UID:GID."""
    keeps_id: bool
    """Whether the engine must be told to map the daemon's user to the same uid in the container."""
    has_cgroup: bool
    """Whether containers get a control group of their own, not that of the terminal."""


def run_argv(setup: Setup, name: str, command: Command, files: Protected) -> list[str]:
    """Return the argv that runs a command in the foreground, in a new container `name`.

    `files` are the protected files of the command's workspace. Raises `ProviderError` for a path
    that cannot be mounted.
    """
    mounts = [_bind(command.workspace)]
    mounts += map(_bind, files.pinned)
    mounts += [_bind(path, read_only=True) for path in files.read_only]
    environment = container_environment(command.env, command.requested)
    options = [
        "--interactive",
        "--tty",
        *base_options(setup, name, network=command.network),
        *(f"--mount={mount}" for mount in mounts),
        *(f"--env={key}={value}" for key, value in environment.items()),
    ]
    fallback = command.fallback_argv or ()
    arguments = [command.cwd, command.shell, str(len(command.argv)), str(len(fallback))]
    return shell_argv(setup, options, [*arguments, *command.argv, *fallback])


def shell_argv(setup: Setup, options: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return the argv that runs the shell in the container, with arguments as in `_INSIDE`."""
    script = _INSIDE + (_BELOW_INIT if setup.engine == "docker" else _AS_INIT)
    return [
        "/bin/sh",
        "-c",
        _ON_HOST,
        "acpterm",
        str(_processes_max()),
        " ".join([setup.engine, *global_options(setup.engine), "run"]),
        *options,
        "--entrypoint=/bin/sh",
        setup.image,
        "-c",
        script,
        "acpterm",
        *arguments,
    ]


def base_options(setup: Setup, name: str, *, network: bool) -> list[str]:
    """Return the options that isolate a container, and that do not depend on the command."""
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
        # Without these options podman and docker differ; programs in /tmp may be executed.
        "--tmpfs=/tmp:rw,exec,nosuid,nodev,mode=1777",
        "--log-driver=none",
    ]
    if not network:
        options.append("--network=none")
    if os.path.exists("/sys/fs/selinux/enforce"):
        # Otherwise SELinux refuses the workspace, or its files would have to be relabelled.
        options.append("--security-opt=label=disable")
    if setup.engine == "docker":
        # Docker has no way to disable the keys that detach it: use three that nobody types.
        options += ["--init", "--detach-keys=ctrl-],ctrl-^,ctrl-_"]
    else:
        options += ["--detach-keys=", "--http-proxy=false"]
        if not setup.has_cgroup:
            options.append("--cgroups=disabled")
        if setup.keeps_id:
            options.append("--userns=keep-id")
    return options


def global_options(engine: str) -> list[str]:
    """Return the options of the engine itself: no warnings, which would be printed as output."""
    return ["--log-level=error"] if engine == "podman" else []


def container_environment(env: Mapping[str, str], requested: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command in a container.

    `env` is its complete environment on the host, and `requested` the part that was requested. The
    home directory is the private /tmp, the only directory besides the workspace that is writable.
    """
    inherited = {key: value for key, value in env.items() if INHERITED.fullmatch(key)}
    return {"HOME": "/tmp", **inherited, **requested}  # noqa: S108  it is the container's own


def _bind(path: str, *, read_only: bool = False) -> str:
    fields = ["type=bind", f"source={path}", f"target={path}"]
    if read_only:
        fields.append("readonly")
    return _csv(fields)


def _csv(fields: Iterable[str]) -> str:
    """Return fields as one line of comma-separated values, as the engines parse it."""
    quoted = []
    for field in fields:
        if any(character in field for character in "\r\n"):
            msg = f"{field.partition('=')[2]!r} cannot be mounted in a container: rename it"
            raise ProviderError(msg)
        if any(character in field for character in ',"'):
            field = '"' + field.replace('"', '""') + '"'  # noqa: PLW2901  quoted in place
        quoted.append(field)
    return ",".join(quoted)


def _processes_max() -> int:
    try:
        with open("/proc/sys/kernel/pid_max") as file:
            return min(int(file.read()), _LIMIT_MAX)
    except (OSError, ValueError):
        return _PID_MAX_DEFAULT
