"""The provider of one Slurm cluster. Implements `provider.RemoteProvider`.

Order of events: `prepare` returns the argv of an `srun --pty`, which the keeper runs on the
terminal's PTY. srun waits in the queue, then passes output, input and window size on, whether this
worker lives or not. Its messages are in a file of a private directory, whose name is the token, so
the next worker finds job, step and node.
"""

import os
import shutil
import time
from typing import Final

import trio

from acpterm.config.places import SlurmPlace
from acpterm.providers.place_files import private_directory
from acpterm.providers.provider import Command, Isolation, Prepared, ProviderError
from acpterm.providers.slurm.commands import environment, resource_options, run
from acpterm.providers.slurm.program import SlurmProgram
from acpterm.providers.slurm.step import WRAPPER, node_argv, node_environment
from acpterm.providers.ssh.job import remote_directory
from acpterm.pty.tracking.marks import Daemon

_CHECK_TIMEOUT_S: Final = 10.0


class SlurmProvider:
    """Runs programs on the cluster of `place`; `name` is the provider's, such as `slurm:gpu`."""

    isolation: Final[Isolation] = "none"

    def __init__(self, name: str, place: SlurmPlace, daemon: Daemon | None = None) -> None:
        self.name: Final = name
        self._place: Final = place
        self._daemon: Final = daemon
        self._programs: dict[str, SlurmProgram] = {}
        self._directory: str | None = None

    async def run(self) -> None:
        await trio.sleep_forever()

    async def prepare(self, command: Command) -> Prepared:
        """Return what the keeper runs for a command. Raises `ProviderError`."""
        if shutil.which("srun") is None:
            raise ProviderError("there is no srun on the PATH: install slurm-client")
        place = self._place
        identifier = os.urandom(16).hex()
        job = None if place.job is None else str(place.job)
        token = f"{identifier} {job or ''}"
        program = self.program(token)
        directory = remote_directory(command.cwd, place.directories)
        text = node_environment(command, directory, identifier)
        resources = resource_options(place, command.resources)
        where = (
            [f"--jobid={job}", "--overlap"]
            if job is not None
            else [*resources, "--no-requeue" if False else "--quit-on-interrupt", *place.options]
        )
        argv = [
            "srun", "--pty", "--verbose", "--unbuffered", f"--job-name={program.name}",
            "--nodes=1", "--ntasks=1", "--chdir=/", *where, *node_argv(len(text)),
        ]  # fmt: skip
        return Prepared(
            ["/bin/sh", "-c", WRAPPER, "acpterm", program._log, "", *argv],
            None,
            {**environment(place, command.env), **text},
            "/",
            token,
            None,
        )

    def program(self, token: str) -> SlurmProgram:
        """Return the program of a terminal; `token` may be from an earlier worker."""
        if token not in self._programs:
            identifier, _, allocation = token.partition(" ")
            if self._directory is None:
                self._directory = private_directory("slurm", self.name, self._daemon)
            log = os.path.join(self._directory, identifier)
            self._programs[token] = SlurmProgram(self._place, identifier, log, allocation or None)
        return self._programs[token]

    async def clean_up(self, token: str) -> None:
        """Remove what is left of a terminal. Does not raise."""
        await self.program(token).clean_up()
        del self._programs[token]

    async def check(self) -> str:
        """Ask the controller. Raises `ProviderError`."""
        began = time.monotonic()
        done = await run(self._place, ["scontrol", "ping"], timeout_s=_CHECK_TIMEOUT_S)
        if done.status != 0 or " is UP" not in done.text:
            raise ProviderError(f"slurmctld does not answer: {done.text or done.status}")
        return f"slurmctld answers in {1000 * (time.monotonic() - began):.0f} ms"
