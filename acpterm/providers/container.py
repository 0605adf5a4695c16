"""The providers `podman` and `docker`: programs run in containers.

A container is started for each terminal, from the image of the settings, and removed when the
terminal has closed. It has the session's directory at the same path, a private /tmp, and nothing
else of the host. Its program has no capabilities, and no network unless the command may use it.

Order of events: `prepare` creates a random token, from which the container's name is derived. The
engine runs in the terminal, and creates the container. It removes the container when the program
ends. If the engine was killed before that, `clean_up` removes the container. This worker calls
`clean_up`, or the next worker does, with the stored token. If the keeper was killed too, the token
may be lost. Then `remove_leftovers` of the next daemon finds the container by its label, which
identifies the daemon that started it.

Differences from other providers: background processes end with the program; a program that is ended
by signal n is reported as exit code 128+n; and exit code 125 means that the engine failed. In the
first milliseconds after podman has started, podman does not pass on signals and new sizes. If the
terminal is killed in this time, the signal ends podman itself, and the exit is reported with the
signal, not with exit code 128+n. If the terminal is resized in this time, the program gets no new
size until the terminal is resized again.

A trial finds the options that an engine needs. It runs one command in a container and checks what
the command can do there: an engine that ignores an option must not be used. (`sandbox_trial` is for
bubblewrap and landlock.)

A container that stays in the terminal's control group is preferred, since acpterm's limits and
kills then apply to it. If the engine cannot do that (docker, runc), the container gets a control
group of its own.

An engine gets the daemon's own environment, in which the user can set the engine's global options,
such as `CONTAINERS_STORAGE_CONF` or `DOCKER_HOST`. It never gets variables of a request.
"""

import hashlib
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Final, Literal, NamedTuple

import structlog
import trio

from acpterm.providers import off_loop
from acpterm.providers.container_argv import EngineSetup, base_options, run_argv, shell_argv
from acpterm.providers.placeholders import Placeholders
from acpterm.providers.provider import Command, Prepared, ProviderError
from acpterm.providers.secret_paths import is_below
from acpterm.providers.workspace import Workspace
from acpterm.pty.tracking.marks import Daemon

LABEL: Final = "acpterm"
"""The label of all containers; its value identifies the daemon."""
_NAME: Final = re.compile(r"acpterm-[0-9a-f]{32}")

_log = structlog.get_logger("acpterm.provider")

_IMAGE: Final = re.compile(r"[a-zA-Z0-9][\w./:@-]*")
# Prints, for `describe`, what the command can do. Uses only builtins of a POSIX shell.
_PROBE: Final = """\
while read -r key value; do
  case $key in Uid:|CapEff:|CapBnd:|NoNewPrivs:|Seccomp:) echo "$key" $value ;; esac
done </proc/self/status
while read -r name _; do case $name in *:) echo "Interface: ${name%:}" ;; esac; done </proc/net/dev
if (: >/acpterm-trial) 2>/dev/null; then echo "Writable: /"; fi
if ! (: >/tmp/acpterm-trial) 2>/dev/null; then echo "Unwritable: /tmp"; fi
"""

COMMAND_TIMEOUT_S: Final = 20.0
"""Maximum seconds of an engine's command, including its waits for locks of other commands."""
_REMOVE_ATTEMPTS_MAX: Final = 5
_REMOVE_RETRY_S: Final = 0.1
_MESSAGE_CHARACTERS_MAX: Final = 500

# Prefixes of the variables that are for the daemon alone, such as those that name its sockets:
# podman would pass the sockets on to the container.
_NOT_INHERITED: Final = ("ACPTERM_", "LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_")


class CommandResult(NamedTuple):
    """The exit status and the output of an engine's command."""

    status: int
    stdout: str
    stderr: str

    @property
    def message(self) -> str:
        """The last line of the output, for an error message; the status if there is no output."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1][:_MESSAGE_CHARACTERS_MAX] if lines else f"status {self.status}"


def engine_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` without variables that are only for the daemon, such as `NOTIFY_SOCKET`."""
    return {name: value for name, value in env.items() if not name.startswith(_NOT_INHERITED)}


class Engine:
    """Runs commands of the engine `name`, which is `podman` or `docker`."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.env: Final = engine_environment(os.environ)

    def is_installed(self) -> bool:
        """Return whether the program of the engine is on the PATH."""
        return shutil.which(self.name, path=self.env.get("PATH")) is not None

    def require(self) -> None:
        """Raise `ProviderError` if the engine is not installed."""
        if not self.is_installed():
            package = "podman and crun" if self.name == "podman" else "docker.io"
            msg = f"{self.name} is not installed: install it (Debian packages: {package})"
            raise ProviderError(msg)

    async def run(self, *arguments: str) -> CommandResult:
        """Run the engine for at most `COMMAND_TIMEOUT_S`. Raises `ProviderError`."""
        return await self.run_argv([self.name, *arguments])

    async def run_argv(self, argv: Iterable[str]) -> CommandResult:
        """As `run`, for a program that executes the engine."""
        words = list(argv)
        with trio.move_on_after(COMMAND_TIMEOUT_S):
            try:
                done = await trio.run_process(
                    words,
                    capture_stdout=True,
                    capture_stderr=True,
                    stdin=subprocess.DEVNULL,
                    check=False,
                    env=self.env,
                    cwd="/",
                    deliver_cancel=_kill,
                    start_new_session=True,
                )
            except OSError as error:
                msg = f"{self.name} cannot be started: {error.strerror or error}"
                raise ProviderError(msg) from error
            return CommandResult(
                done.returncode,
                done.stdout.decode(errors="replace"),
                done.stderr.decode(errors="replace"),
            )
        msg = (
            f"{self.name} has not answered within {COMMAND_TIMEOUT_S:g} s: run `{self.name} info` "
            "to find out why"
        )
        raise ProviderError(msg)

    async def remove(self, name: str) -> None:
        """Kill and remove a container, if it exists. Does not raise: a failure is logged."""
        # podman's first call fails if another program has killed the container's processes; then
        # podman knows that they have ended, and a later call succeeds.
        problem = ""
        for attempt in range(_REMOVE_ATTEMPTS_MAX):
            if attempt:
                await trio.sleep(_REMOVE_RETRY_S)
            try:
                result = await self.run("rm", *self._remove_options(), "--", name)
            except ProviderError as error:
                problem = str(error)
                break
            problem = result.message
            if result.status == 0 or "no such container" in problem.lower():
                return
        _log.warning("a container was not removed", container=name, problem=problem)

    def _remove_options(self) -> tuple[str, ...]:
        return ("--force", "--time=0") if self.name == "podman" else ("--force", "--volumes")


async def _kill(process: trio.Process) -> None:
    process.kill()


async def try_engine(
    engine: Engine, image: str, labels: tuple[str, ...], name: str
) -> tuple[EngineSetup, str]:
    """Run a trial in a container; return the options that work, and a line for the user."""
    engine.require()
    version = await _version(engine)
    await _require_image(engine, image)
    result = CommandResult(1, "", "")
    for setup in await _setups(engine, image, labels):
        options = base_options(setup, name, network=False)
        argv = shell_argv(setup, options, ["/", "/bin/sh", "-c", _PROBE])
        is_done = False
        try:
            result = await engine.run_argv(argv)
            is_done = result.status == 0
        finally:
            # If the command has succeeded, the engine has removed its container already.
            if not is_done:
                with trio.CancelScope(shield=True):
                    await engine.remove(name)
        if result.status == 0:
            return setup, describe(version, setup, result.stdout)
    msg = (
        f"{engine.name} cannot run a command in the image {image}: {result.message} (the image "
        f"must have a /bin/sh; try `{engine.name} run --rm --network=none {image} /bin/sh -c true`)"
    )
    raise ProviderError(msg)


async def _version(engine: Engine) -> str:
    result = await engine.run("--version")
    found = re.search(r"\d+(?:\.\d+)+", result.stdout)
    if result.status != 0 or found is None:
        msg = f"{engine.name} does not work: `{engine.name} --version` says: {result.message}"
        raise ProviderError(msg)
    return f"{engine.name} {found[0]}"


async def _require_image(engine: Engine, image: str) -> None:
    if not _IMAGE.fullmatch(image):
        msg = f"{image!r} is not the name of an image, such as docker.io/library/debian:12"
        raise ProviderError(msg)
    result = await engine.run("image", "inspect", "--format={{.Id}}", image)
    if result.status == 0:
        return
    if "no such image" in result.message.lower() or "image not known" in result.message.lower():
        msg = f"{engine.name} does not have the image {image}: run `{engine.name} pull {image}`"
        raise ProviderError(msg)
    msg = f"{engine.name} does not work: {result.message} (try `{engine.name} info`)"
    raise ProviderError(msg)


async def _setups(engine: Engine, image: str, labels: tuple[str, ...]) -> list[EngineSetup]:
    """Return the sets of options to try with the engine, the preferred one first."""
    uid, gid = os.geteuid(), os.getegid()
    setup = EngineSetup(engine.name, image, labels, f"{uid}:{gid}", keeps_id=False, has_cgroup=True)
    if engine.name == "podman":
        setup = setup._replace(keeps_id=uid != 0)
        return [setup._replace(has_cgroup=False), setup]
    info = await engine.run("info", "--format={{.SecurityOptions}}")
    if info.status != 0:
        msg = f"docker does not work: {info.message} (is its daemon running? try `docker info`)"
        raise ProviderError(msg)
    # In a container of a rootless docker, root is the user who runs the daemon.
    return [setup._replace(user="0:0")] if "rootless" in info.stdout else [setup]


def describe(version: str, setup: EngineSetup, output: str) -> str:
    """Return a line for the user; raise `ProviderError` if the output shows no isolation."""
    found: dict[str, list[str]] = {}
    for key, _, value in (line.partition(": ") for line in output.splitlines()):
        found.setdefault(key, []).append(value)
    uid = setup.user.partition(":")[0]
    problems = []
    if {int(value, 16) for key in ("CapEff", "CapBnd") for value in found.get(key, ["1"])} != {0}:
        problems.append("programs have capabilities")
    if found.get("NoNewPrivs") != ["1"]:
        problems.append("setuid programs gain privileges")
    if found.get("Uid") != [" ".join([uid] * 4)]:
        problems.append(f"programs do not run as user {uid}")
    if set(found.get("Interface", ["?"])) - {"lo"}:
        problems.append("there is a network")
    if "Writable" in found:
        problems.append("the image is writable")
    if "Unwritable" in found:
        problems.append("/tmp is not writable")  # noqa: S108  it is the container's own
    if problems:
        msg = f"{version} does not isolate a container of {setup.image}: {', '.join(problems)}"
        raise ProviderError(msg)
    # acpterm sets a terminal's limits on the terminal's control group.
    own = "a control group of its own, so limits of memory, CPU, processes and disk do not apply"
    group = own if setup.has_cgroup else "the terminal's control group"
    seccomp = "a system call filter" if found.get("Seccomp") == ["2"] else "no system call filter"
    return (
        f"{version}: image {setup.image}, user {uid} without capabilities, no network, "
        f"{seccomp}, {group}"
    )


def make_container(
    name: Literal["podman", "docker"],
    image: str | None,
    daemon: Daemon | None,
    placeholders: Placeholders | None,
) -> "ContainerProvider":
    """Return the provider. Raises `ProviderError` if there is no image or no such program."""
    Engine(name).require()
    if image is None:
        raise ProviderError(f"{name}: there is no image: set the setting image")
    return ContainerProvider(name, image, daemon, placeholders)


class ContainerProvider:
    """Runs programs in containers of `image`, by podman or docker. Implements `Provider`."""

    # `daemon` becomes a label of the containers, by which a later daemon finds what a killed one
    # has left; without it nothing is removed later.

    def __init__(
        self,
        engine: Literal["podman", "docker"],
        image: str,
        daemon: Daemon | None = None,
        placeholders: Placeholders | None = None,
    ) -> None:
        self.name: Final = engine
        self._engine: Final = Engine(engine)
        self._image: Final = image
        self._daemon: Final = daemon
        self._placeholders: Final = placeholders or Placeholders()
        self._setup: EngineSetup | None = None
        self._trying: Final = trio.Lock()

    async def prepare(self, command: Command) -> Prepared:
        """Return the argv that runs a command in a new container, and the token for `clean_up`."""
        setup = await self._tried()
        return await off_loop.prepare(
            partial(self._prepared, setup, command), self._placeholders.remove
        )

    def _prepared(self, setup: EngineSetup, command: Command) -> Prepared:
        workspace, token, _ = self._placeholders.protect(command.workspace)
        try:
            _check_hidden(command, workspace)
            argv = run_argv(setup, container_name(token), command, workspace)
            return Prepared(argv, None, self._engine.env, cwd="/", token=token)
        except BaseException:
            self._placeholders.remove(token)
            raise

    async def clean_up(self, token: str) -> None:
        """Remove a terminal's container and placeholders. Idempotent; does not raise."""
        await self._engine.remove(container_name(token))
        await off_loop.clean_up(partial(self._placeholders.remove, token))

    async def check(self) -> str:
        """Run a trial in a container; return a line that describes the isolation."""
        async with self._trying:
            self._setup, description = await self._try()
        return description

    async def remove_leftovers(self, held: Collection[str] = ()) -> int:
        """Remove containers of killed daemons, except `held` ones; return how many."""
        # Only those of daemons with this socket, or with none.
        if not await off_loop.look_up(self._engine.is_installed):
            return 0
        try:
            names = await self._leftovers()
        except ProviderError as error:
            _log.warning("leftover containers are not removed", problem=str(error))
            return 0
        kept = set(map(container_name, held))
        names = [name for name in names if name not in kept]
        for name in names:
            await self._engine.remove(name)
        return len(names)

    async def _leftovers(self) -> list[str]:
        listed = await self._engine.run("ps", "--all", "--quiet", f"--filter=label={LABEL}")
        ids = listed.stdout.split()
        if not ids:
            return []
        line = f'{{{{.Name}}}} {{{{index .Config.Labels "{LABEL}"}}}}'
        # The output lacks containers that are removed meanwhile.
        shown = await self._engine.run("inspect", "--type=container", f"--format={line}", *ids)
        found = []
        for name, _, label in (text.partition(" ") for text in shown.stdout.splitlines()):
            daemon = Daemon.parse(label)
            if daemon is not None and self._is_ours(daemon) and daemon.is_gone():
                found.append(name.removeprefix("/"))
        return [name for name in found if _NAME.fullmatch(name)]

    def _is_ours(self, daemon: Daemon) -> bool:
        return daemon.place == 0 or (
            self._daemon is not None and daemon.place == self._daemon.place
        )

    async def _tried(self) -> EngineSetup:
        async with self._trying:
            if self._setup is None:
                self._setup, _ = await self._try()
            return self._setup

    async def _try(self) -> tuple[EngineSetup, str]:
        label = LABEL if self._daemon is None else f"{LABEL}={self._daemon}"
        name = f"acpterm-{secrets.token_hex(16)}"
        return await try_engine(self._engine, self._image, (label,), name)


def container_name(token: str) -> str:
    """Return the name of the container of the terminal with this token."""
    return f"acpterm-{hashlib.blake2b(os.fsencode(token), digest_size=16).hexdigest()}"


def _check_hidden(command: Command, workspace: Workspace) -> None:
    """Raise `ProviderError` if a path of `Command.hidden` is in the workspace."""
    # A mount over the path would not be enough: the program could rename a directory above it, and
    # the next container would show the files at the new path.
    for path in command.hidden:
        if is_below(os.path.realpath(path), workspace.path):
            msg = (
                f"{command.workspace} cannot be the directory of a container, which could then "
                f"reach {path}: start the agent in a directory of the project"
            )
            raise ProviderError(msg)
