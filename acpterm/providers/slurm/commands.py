"""Runs Slurm's commands, such as scancel and squeue, and builds the options of jobs and steps."""

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
    """The exit status of a command, and what it printed on stdout and stderr."""

    status: int
    text: str

    @property
    def problem(self) -> str:
        """The end of `text`, with its lines joined to one; the exit status if `text` is empty."""
        return "; ".join(self.text.splitlines())[-_TEXT_MAX:] or f"exit status {self.status}"

    @property
    def is_gone(self) -> bool:
        """Whether the command failed because Slurm does not know the job."""
        return self.status != 0 and _GONE[0] in self.text

    @property
    def has_cancelled(self) -> bool:
        """For scancel: whether each of its jobs is cancelled, has ended, or is unknown to Slurm."""
        return self.status == 0 or (
            bool(self.text)
            and all(any(gone in line for gone in _GONE) for line in self.text.splitlines())
        )


class CommandLimits:
    """Limits how many commands of Slurm run at the same time for the terminals of a place."""

    # When hundreds of terminals end together, more commands would not be faster: starting them
    # delays this process, and the controller does not answer in time. Limited apart are short steps
    # that make a waiting srun ask again (`wakes`: one), other sruns, and requests to the
    # controller.

    def __init__(self, most: int = _COMMANDS_MAX) -> None:
        self._steps: Final = trio.CapacityLimiter(most)
        self._others: Final = trio.CapacityLimiter(most)
        self.wakes: Final = trio.CapacityLimiter(1)
        self._woken_at: dict[str, float] = {}

    def of(self, program: str) -> trio.CapacityLimiter:
        """Return the limiter to hold while the command `program`, such as `srun`, runs."""
        return self._steps if program == "srun" else self._others

    def was_woken(self, job: str) -> bool:
        """Return whether `record_wake` was called for `job` in the last `_WAKE_PAUSE_S` seconds."""
        return trio.current_time() - self._woken_at.get(job, -math.inf) < _WAKE_PAUSE_S

    def record_wake(self, job: str) -> None:
        """Record for `was_woken` that a short step begins now in the job with the id `job`."""
        self._woken_at = {one: at for one, at in self._woken_at.items() if self.was_woken(one)}
        self._woken_at[job] = trio.current_time()


def environment(place: SlurmPlace, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Slurm's commands for `place`, with `TERM` of `env`."""
    # If the daemon runs in a job, Slurm's other variables would make srun start the steps there.
    config = place.config or os.environ.get("SLURM_CONF")
    found = {**client_environment(env), "LC_ALL": "C"}
    return found if config is None else {**found, "SLURM_CONF": config}


def job_options(place: SlurmPlace, request: SlurmResources) -> list[str]:
    """Return the options of srun or salloc for a new job; the settings' options come last."""
    return [*_options(_OPTIONS, request, place), *place.options]


def step_options(place: SlurmPlace, request: SlurmResources) -> list[str]:
    """Return the options of srun for a step in an allocation."""
    # Memory and time only if requested: otherwise all steps share those of the allocation.
    shared = SlurmResources(cpus=place.cpus, gpus=place.gpus)
    return _options(("time", "cpus", "memory", "gpus"), request, shared)


def _options(
    names: Sequence[str] | Mapping[str, str], first: SlurmResources, second: SlurmResources
) -> list[str]:
    values = {name: getattr(first, name) or getattr(second, name) for name in names}
    return [f"{_OPTIONS[name]}{value}" for name, value in values.items() if value is not None]


def require(program: str) -> None:
    """Raise `ProviderError` if the program `program` is not on the PATH."""
    if shutil.which(program) is None:
        raise ProviderError(f"there is no {program} on the PATH: install slurm-client")


def require_config(place: SlurmPlace) -> None:
    """Raise `ProviderError` if Slurm's configuration file cannot be read."""
    # Without it, Slurm's commands search the network for a configuration for a long time.
    path = environment(place, {}).get("SLURM_CONF")
    if path is None:
        return
    try:
        open(path, "rb").close()
    except OSError as error:
        raise ProviderError(f"{path}: cannot be read: {error.strerror}") from error


async def run(place: SlurmPlace, argv: Sequence[str], *, timeout_s: float) -> Done:
    """Run one of Slurm's commands; return status and output. Raises `ProviderError`."""
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
    """End commands of Slurm by SIGTERM, and after 1 s by SIGKILL. Cannot be cancelled."""
    # On SIGTERM, srun ends its step, and salloc cancels its request; SIGKILL leaves no time for
    # that.
    for process in processes:
        process.terminate()
    with trio.move_on_after(_TERMINATE_TIMEOUT_S, shield=True):
        for process in processes:
            await process.wait()
    for process in processes:
        process.kill()


async def job_state(place: SlurmPlace, job: str | int, *, timeout_s: float) -> Done:
    """Ask for the state of a job, such as `RUNNING`; empty after its end, later `is_gone`."""
    argv = ["squeue", "--noheader", f"--jobs={job}", "--format=%T"]
    return await run(place, argv, timeout_s=timeout_s)


async def cancel(place: SlurmPlace, jobs: Iterable[str], *, timeout_s: float) -> None:
    """Cancel jobs (ids, or `--name=` options). Raises `ProviderError` if that is not certain."""
    done = await run(place, ["scancel", *jobs], timeout_s=timeout_s)
    if not done.has_cancelled:
        raise ProviderError(done.problem)


async def start_detached(place: SlurmPlace, argv: Sequence[str], log: str) -> trio.Process:
    """Start a command that may outlive this worker; append its stderr to the file `log`."""
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
