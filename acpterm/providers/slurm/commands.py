"""Slurm's commands: their options, their environment, and how they are run."""

import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from subprocess import DEVNULL, STDOUT
from typing import Final, NamedTuple

import trio

from acpterm.config.places import SlurmPlace, SlurmResources
from acpterm.providers.place_client import client_environment
from acpterm.providers.provider import ProviderError
from acpterm.pty.tracking.marks import STARTED_DETACHED

_TEXT_MAX: Final = 400
_COMMANDS_MAX: Final = 16
_WAKE_PAUSE_S: Final = 5.0
_TERMINATE_TIMEOUT_S: Final = 1.0
_GONE: Final = ("Invalid job id", "already completing or completed")
_OPTIONS: Final = {
    "partition": "--partition=",
    "account": "--account=",
    "time": "--time=",
    "cpus": "--cpus-per-task=",
    "memory": "--mem=",
    "gpus": "--gres=gpu:",
}


class Done(NamedTuple):
    """How a command ended: its status, and what it printed."""

    status: int
    text: str

    @property
    def problem(self) -> str:
        """The end of what it printed, in one line, for an error."""
        return "; ".join(self.text.splitlines())[-_TEXT_MAX:] or f"exit status {self.status}"

    @property
    def is_gone(self) -> bool:
        """Whether Slurm does not know the job."""
        return self.status != 0 and _GONE[0] in self.text

    @property
    def has_cancelled(self) -> bool:
        """Whether a scancel has left nothing: a job that had ended already is no error."""
        return self.status == 0 or (
            bool(self.text)
            and all(any(gone in line for gone in _GONE) for line in self.text.splitlines())
        )


class Room:
    """Bounds how many commands for the terminals of a place run at once.

    Hundreds of terminals may end at once. More commands are not faster: their start delays this
    process, and the controller does not answer them in time. Steps wait for programs to end;
    commands that only ask the controller do not wait for them. A step that wakes others may wait
    for hours, too; there is only one of them at once.
    """

    def __init__(self, most: int = _COMMANDS_MAX) -> None:
        self._steps: Final = trio.CapacityLimiter(most)
        self._others: Final = trio.CapacityLimiter(most)
        self.wakes: Final = trio.CapacityLimiter(1)
        self._woken_at: dict[str, float] = {}

    def of(self, program: str) -> trio.CapacityLimiter:
        """Return what bounds this command of Slurm."""
        return self._steps if program == "srun" else self._others

    def was_woken(self, job: str) -> bool:
        """Return whether the steps of a job were woken a short time ago."""
        return trio.current_time() - self._woken_at.get(job, -math.inf) < _WAKE_PAUSE_S

    def record_wake(self, job: str) -> None:
        """Record that the steps of a job are woken now."""
        self._woken_at = {one: at for one, at in self._woken_at.items() if self.was_woken(one)}
        self._woken_at[job] = trio.current_time()


def environment(place: SlurmPlace, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Slurm's commands; `TERM` is that of `env`.

    It has no other variable of Slurm, so that a daemon in a job does not start its terminals there.
    """
    config = place.config or os.environ.get("SLURM_CONF")
    found = {**client_environment(env), "LC_ALL": "C"}
    return found if config is None else {**found, "SLURM_CONF": config}


def job_options(place: SlurmPlace, request: SlurmResources) -> list[str]:
    """Return the options of a new job: what the request asks, else what the place says."""
    return [*_options(_OPTIONS, request, place), *place.options]


def step_options(place: SlurmPlace, request: SlurmResources) -> list[str]:
    """Return the options of a step in an allocation.

    Steps share the allocation's memory and time, unless the request asks for less.
    """
    shared = SlurmResources(cpus=place.cpus, gpus=place.gpus)
    return _options(("time", "cpus", "memory", "gpus"), request, shared)


def _options(
    names: Sequence[str] | Mapping[str, str], first: SlurmResources, second: SlurmResources
) -> list[str]:
    values = {name: getattr(first, name) or getattr(second, name) for name in names}
    return [f"{_OPTIONS[name]}{value}" for name, value in values.items() if value is not None]


def require(program: str) -> None:
    """Raise `ProviderError` if a command of Slurm is not installed."""
    if shutil.which(program) is None:
        raise ProviderError(f"there is no {program} on the PATH: install slurm-client")


def require_config(place: SlurmPlace) -> None:
    """Raise `ProviderError` if Slurm's configuration cannot be read.

    Without it, Slurm's commands try to find one in the network for a long time.
    """
    path = environment(place, {}).get("SLURM_CONF")
    if path is None:
        return
    try:
        open(path, "rb").close()
    except OSError as error:
        raise ProviderError(f"{path}: cannot be read: {error.strerror}") from error


async def run(place: SlurmPlace, argv: Sequence[str], *, timeout_s: float) -> Done:
    """Run one of Slurm's commands.

    Raises `ProviderError` if it is missing, cannot be started, or does not end.
    """
    require(argv[0])
    try:
        with trio.fail_after(timeout_s):
            done = await trio.run_process(
                list(argv),
                stdin=DEVNULL,
                capture_stdout=True,
                stderr=STDOUT,
                env={**environment(place, {}), STARTED_DETACHED: "slurm"},
                cwd="/",
                start_new_session=True,
                check=False,
                deliver_cancel=end,
            )
    except trio.TooSlowError:
        raise ProviderError(f"{argv[0]} did not end within {timeout_s:g} s") from None
    except OSError as error:
        raise ProviderError(f"{argv[0]} cannot be started: {error}") from error
    return Done(done.returncode, os.fsdecode(done.stdout).strip())


async def end(*processes: trio.Process) -> None:
    """End commands of Slurm; not cancelled.

    With the time of SIGTERM, srun takes its step with it, and salloc cancels its request.
    """
    for process in processes:
        process.terminate()
    with trio.move_on_after(_TERMINATE_TIMEOUT_S, shield=True):
        for process in processes:
            await process.wait()
    for process in processes:
        process.kill()


async def job_state(place: SlurmPlace, job: str | int, *, timeout_s: float) -> Done:
    """Ask the controller for the state of a job, such as `RUNNING`. Raises `ProviderError`."""
    argv = ["squeue", "--noheader", f"--jobs={job}", "--format=%T"]
    return await run(place, argv, timeout_s=timeout_s)


async def cancel(place: SlurmPlace, jobs: Iterable[str], *, timeout_s: float) -> None:
    """Cancel jobs by one command. Raises `ProviderError` if some may be left."""
    done = await run(place, ["scancel", *jobs], timeout_s=timeout_s)
    if not done.has_cancelled:
        raise ProviderError(done.problem)


async def start_detached(place: SlurmPlace, argv: Sequence[str], log: str) -> trio.Process:
    """Start a command that outlives this worker, with its messages in the file `log`.

    Raises `ProviderError`.
    """
    require(argv[0])
    try:
        with open(log, "ab") as file:  # noqa: ASYNC230  in a private directory of this machine
            return await trio.lowlevel.open_process(
                list(argv),
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=file,
                env={**environment(place, {}), STARTED_DETACHED: "slurm"},
                cwd="/",
                start_new_session=True,
            )
    except OSError as error:
        raise ProviderError(f"{argv[0]} cannot be started: {error}") from error
