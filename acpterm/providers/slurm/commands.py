"""Slurm's commands: their options, their environment, and how they are run."""

import os
import shutil
from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Final, NamedTuple

import trio

from acpterm.config.places import SlurmPlace, SlurmResources
from acpterm.providers.place_files import client_environment
from acpterm.providers.provider import ProviderError
from acpterm.pty.tracking.marks import STARTED_DETACHED

_TEXT_MAX: Final = 400
_OPTIONS: Final = {
    "partition": "partition",
    "account": "account",
    "time": "time",
    "cpus": "cpus-per-task",
    "memory": "mem",
    "gpus": "gres=gpu",
}


class Done(NamedTuple):
    """How a command ended: its status, and what it printed."""

    status: int
    text: str


def environment(place: SlurmPlace, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Slurm's commands; `TERM` is that of `env`."""
    own = {name: text for name, text in os.environ.items() if name == "SLURM_CONF"}
    config = {} if place.config is None else {"SLURM_CONF": place.config}
    return {**own, **client_environment(env), **config, "LC_ALL": "C"}


def resource_options(place: SlurmResources, request: SlurmResources | None) -> list[str]:
    """Return the options for what a job gets: what the request asks, else what the place says."""
    found = []
    for name, option in _OPTIONS.items():
        asked = None if request is None else getattr(request, name)
        value = getattr(place, name) if asked is None else asked
        if value is not None:
            found.append(f"--{option}{':' if option == 'gres=gpu' else '='}{value}")
    return found


async def run(place: SlurmPlace, argv: Sequence[str], *, timeout_s: float) -> Done:
    """Run one of Slurm's commands. Raises `ProviderError` if it is missing or does not end."""
    if shutil.which(argv[0]) is None:
        raise ProviderError(f"there is no {argv[0]} on the PATH: install slurm-client")
    try:
        with trio.fail_after(timeout_s):
            done = await trio.run_process(
                list(argv),
                stdin=DEVNULL,
                capture_stdout=True,
                stderr=STDOUT,
                env={**environment(place, {}), STARTED_DETACHED: "slurm"},
                start_new_session=True,
                check=False,
            )
    except trio.TooSlowError:
        raise ProviderError(f"{argv[0]} did not end within {timeout_s:g} s") from None
    text = os.fsdecode(done.stdout).strip()
    return Done(done.returncode, text[-_TEXT_MAX:])


async def start_detached(place: SlurmPlace, argv: Sequence[str], log: str) -> None:
    """Start a command that outlives this worker, with its messages in the file `log`."""
    with open(log, "ab") as file:
        process = await trio.lowlevel.open_process(
            list(argv),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=file,
            env={**environment(place, {}), STARTED_DETACHED: "slurm"},
            start_new_session=True,
        )
    del process


_ = PIPE
