"""The provider of one Slurm cluster. Implements `provider.RemoteProvider`.

Order of events: `prepare` returns the argv of a script that the keeper runs on the terminal's PTY.
The script runs `srun --pty`, which waits in the queue, and then passes output, input and window
size on, whether this worker lives or not. srun's messages are in a file in this daemon's directory.
`Prepared.token` has the file's name, so the next worker finds the job, the step and the node.

If a daemon is killed together with its keeper, its srun processes end with their PTYs, but its jobs
may continue. The next daemon with the same place finds the files, and cancels these jobs.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

import structlog
import trio

from acpterm.config.places import SlurmPlace, SlurmResources
from acpterm.providers.place_client import shared_directory
from acpterm.providers.provider import Command, Prepared, ProviderError
from acpterm.providers.slurm import progress
from acpterm.providers.slurm.allocations import Allocations
from acpterm.providers.slurm.commands import (
    CommandLimits,
    cancel,
    environment,
    job_options,
    job_state,
    require,
    require_config,
    run,
    step_options,
)
from acpterm.providers.slurm.program import SlurmProgram
from acpterm.providers.slurm.step import node_argv, node_environment, wrapper_argv
from acpterm.providers.ssh.job import remote_directory
from acpterm.pty.tracking.marks import Daemon

_CHECK_TIMEOUT_S: Final = 10.0
_CLEAN_UP_TIMEOUT_S: Final = 3.0
_CLOSE_TIMEOUT_S: Final = 2.0

_log = structlog.get_logger("acpterm.provider")


class SlurmProvider:
    """Runs programs on the cluster of `place`; `name` is the provider's, such as `slurm:gpu`."""

    # A later daemon recognizes by `daemon` the jobs that this one has left; a mere `check` needs
    # none.

    def __init__(self, name: str, place: SlurmPlace, daemon: Daemon | None = None) -> None:
        self.name: Final = name
        self._place: Final = place
        self._daemon: Final = daemon
        self._programs: dict[str, SlurmProgram] = {}
        self._limits: Final = CommandLimits()
        self._made: Allocations | None = None
        self._nursery: trio.Nursery | None = None

    @property
    def _allocations(self) -> Allocations:
        if self._made is None:
            path = shared_directory("slurm", self._key, str(self._daemon))
            self._made = Allocations(self._place, path)
        return self._made

    @property
    def _key(self) -> str:
        # The path of Slurm's configuration identifies the cluster.
        return f"{environment(self._place, {}).get('SLURM_CONF', '')} {self.name}"

    async def run(self) -> None:
        """Cancel the jobs of killed daemons; when cancelled, release the allocations."""
        try:
            allocations = self._allocations
        except ProviderError:
            # Each later use of the provider raises this error again.
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await self._cancel_leftovers()
                await trio.sleep_forever()
            finally:
                self._nursery = None
                with trio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                    await allocations.release_all()
                # This fails if files are left: the next daemon needs them, to cancel their jobs.
                with contextlib.suppress(OSError):
                    os.rmdir(allocations.path(""))
                nursery.cancel_scope.cancel()

    async def _cancel_leftovers(self) -> None:
        """Cancel the jobs of killed daemons. The directories of running daemons are skipped."""
        try:
            parent = shared_directory("slurm", self._key)
            owners = set(os.listdir(parent)) - {str(self._daemon)}
        except (ProviderError, OSError) as error:
            _log.warning("jobs of an earlier daemon may be left", problem=str(error))
            return
        for owner in owners:
            path = os.path.join(parent, owner)
            other = Daemon.parse(owner)
            if other is None or not other.is_gone():
                continue
            try:
                found = [progress.load(os.path.join(path, name)) for name in os.listdir(path)]
                jobs = [one.job for one in found if one.job is not None and one.is_own]
                if jobs:
                    await cancel(self._place, jobs, timeout_s=_CHECK_TIMEOUT_S)
            except (ProviderError, OSError) as error:
                _log.warning("jobs of an earlier daemon may be left", problem=str(error))
            else:
                shutil.rmtree(path, ignore_errors=True)

    async def prepare(self, command: Command) -> Prepared:
        """Return the argv and the environment of the script that runs `srun` for a command."""
        require("srun")
        require_config(self._place)
        place, allocations = self._place, self._allocations
        request = command.resources or SlurmResources()
        identifier = os.urandom(16).hex()
        shared = None if place.job is None else str(place.job)
        if place.session and command.session is not None:
            if self._nursery is None:
                raise ProviderError("acpterm is shutting down")
            shared = await allocations.find_or_request(command.session, self._nursery)
        token = identifier if shared is None else f"{identifier} {shared}"
        program = self.program(token)
        directory = remote_directory(command.cwd, place.directories)
        text = node_environment(command, directory, identifier)
        if shared is None:
            where, granted = job_options(place, request), ""
        elif place.job is not None:
            where, granted = [f"--jobid={shared}", "--overlap"], ""
            where += step_options(place, request)
        else:
            where, granted = ["--jobid=JOB", "--overlap"], allocations.path(shared)
            where += step_options(place, request)
        fixed = ["--pty", "--verbose", "--unbuffered", "--mpi=none", "--nodes=1", "--ntasks=1"]
        argv = ["srun", *fixed, f"--job-name={program.name}", "--chdir=/", *where]
        return Prepared(
            wrapper_argv(program.log, granted, [*argv, *node_argv(len(text))]),
            None,
            {**environment(place, command.env), **text},
            "/",
            token,
            None,
        )

    def program(self, token: str) -> SlurmProgram:
        """Return the program of a terminal, also of an earlier worker's."""
        if token not in self._programs:
            identifier, _, shared = token.partition(" ")
            allocations = self._allocations
            if shared:
                allocations.use(shared, identifier)
            self._programs[token] = SlurmProgram(
                self._place,
                identifier,
                allocations.path(identifier),
                self._limits,
                shares_job=bool(shared),
                on_refusal=partial(self._record_refusal, shared, identifier),
            )
        return self._programs[token]

    def _record_refusal(self, allocation: str, user: str) -> None:
        """Record that an allocation may have ended: check it before its next use."""
        self._allocations.distrust(allocation)
        if allocation and self._nursery is not None:
            self._nursery.start_soon(self._allocations.leave, allocation, user)

    async def clean_up(self, token: str) -> None:
        """Cancel the job of a terminal, unless it has ended. Raises `ProviderError`."""
        identifier, _, shared = token.partition(" ")
        try:
            with trio.fail_after(_CLEAN_UP_TIMEOUT_S):
                await self.program(token).clean_up()
        except trio.TooSlowError:
            raise ProviderError(f"scancel did not end within {_CLEAN_UP_TIMEOUT_S:g} s") from None
        finally:
            if shared:
                await self._allocations.leave(shared, identifier)
        self._programs.pop(token, None)

    def end_session(self, session: str) -> None:
        """Release the allocation of the ended session `session` once no program uses it."""
        if self._place.session and self._nursery is not None:
            self._nursery.start_soon(self._allocations.end_session, session)

    def end_all(self) -> None:
        """Start one command that cancels all jobs of this daemon; do not wait for it."""
        # At shutdown there is no time to cancel jobs one after another.
        if self._place.job is None and self._nursery is not None:
            found = {program: program.begin_cancel() for program in self._programs.values()}
            self._nursery.start_soon(
                self._cancel, {program: job for program, job in found.items() if job is not None}
            )

    async def _cancel(self, jobs: Mapping[SlurmProgram, str]) -> None:
        """Cancel several programs' jobs by one command; if it fails, `clean_up` does it."""
        if not jobs:
            return
        is_cancelled = False
        try:
            await cancel(self._place, sorted(set(jobs.values())), timeout_s=_CHECK_TIMEOUT_S)
            is_cancelled = True
        except ProviderError as error:
            _log.warning("jobs may be left", problem=str(error))
        finally:
            for program in jobs:
                program.end_cancel(is_cancelled=is_cancelled)

    async def check(self) -> str:
        """Ask the controller which nodes are up; return their number and the reply time as text."""
        require_config(self._place)
        began = time.monotonic()
        partition = (
            [] if self._place.partition is None else [f"--partition={self._place.partition}"]
        )
        argv = ["sinfo", "--noheader", "--Node", "--format=%N %a %t", *partition]
        done = await run(self._place, argv, timeout_s=_CHECK_TIMEOUT_S)
        took = 1000 * (time.monotonic() - began)
        if done.status != 0:
            raise ProviderError(f"the controller does not answer: {done.problem}")
        rows = [line.split() for line in done.text.splitlines()]
        rows = [row for row in rows if len(row) == 3 and row[1] == "up"]
        if not rows:
            raise ProviderError(f"there is no partition {self._place.partition or ''} that is up")
        usable = ("idle", "mix", "alloc", "comp")
        # A node is in several partitions.
        nodes = len({row[0] for row in rows if row[2].startswith(usable)})
        if not nodes:
            raise ProviderError("no node of the partition is up")
        await self._check_settings()
        return f"{nodes} nodes up, the controller answers in {took:.0f} ms"

    async def _check_settings(self) -> None:
        """Raise `ProviderError` if the place's settings name an ended job, or invalid options."""
        place = self._place
        if place.job is not None:
            done = await job_state(place, place.job, timeout_s=_CHECK_TIMEOUT_S)
            if done.is_gone or done.text in ("", "COMPLETING"):
                raise ProviderError(f"job = {place.job}: there is no such job")
        else:
            # With --test-only, Slurm checks the options without queuing a job.
            argv = ["srun", "--test-only", "--nodes=1", "--ntasks=1"]
            argv += [*job_options(place, SlurmResources()), "true"]
            done = await run(place, argv, timeout_s=_CHECK_TIMEOUT_S)
        if done.status != 0:
            what = "Slurm refuses the settings" if place.job is None else f"job = {place.job}"
            raise ProviderError(f"{what}: {done.problem}")
