"""Runs commands of a container engine, podman or docker, such as `podman rm`.

An engine gets the daemon's own environment, in which the user can set the engine's global options,
such as `CONTAINERS_STORAGE_CONF` or `DOCKER_HOST`. It never gets variables of a request.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import structlog
import trio

from acpterm.providers.provider import ProviderError

COMMAND_TIMEOUT_S: Final = 20.0
"""Maximum seconds of an engine's command, including its waits for locks of other commands."""
_REMOVE_ATTEMPTS_MAX: Final = 5
_REMOVE_RETRY_S: Final = 0.1
_MESSAGE_CHARACTERS_MAX: Final = 500

# Prefixes of the variables that are for the daemon alone, such as those that name its sockets:
# podman would pass the sockets on to the container.
_NOT_INHERITED: Final = ("ACPTERM_", "LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_")

_log = structlog.get_logger("acpterm.provider")


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
