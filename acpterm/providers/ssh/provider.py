"""The provider of one host that OpenSSH's client reaches. Implements `provider.RemoteProvider`.

Order of events: `prepare` checks that the host answers, sends it a job over the control channel,
and returns the argv of an `ssh` that runs the job in a new session of a master connection. The
keeper runs this `ssh` on the terminal's PTY, so OpenSSH passes output, input, window size and
hang-up on, whether this worker lives or not. `clean_up` removes the job's files from the host.

If the connection is lost, the PTY on the other host hangs up, and the program is ended there. Its
terminal on this machine exits, and the exit is reported as lost.

If the setting `keeper` is set, and acpterm is installed on the other host, the keeper on this
machine runs a bridge instead of ssh, and the daemon on the other host runs the job. Then programs
survive the loss of the connection: see `remote_keeper`.
"""

import os
import sys
import time
from itertools import pairwise
from typing import Final

import trio

from acpterm.config.places import SshPlace
from acpterm.providers.place_client import client_environment, private_directory
from acpterm.providers.provider import Command, Prepared, ProviderError
from acpterm.providers.sandbox_trial import trial_directory
from acpterm.providers.ssh.connections import Connections
from acpterm.providers.ssh.control import ControlLostError
from acpterm.providers.ssh.job import lines, remote_directory
from acpterm.providers.ssh.keeper_link import terminal_name
from acpterm.providers.ssh.program import KeptProgram, SshProgram
from acpterm.providers.ssh.remote_keeper import RemoteKeeper
from acpterm.providers.ssh.scripts import UNLESS_REMOVED
from acpterm.pty.tracking.marks import Daemon

_CLEAN_UP_TIMEOUT_S: Final = 3.0
# A token has two words: the id of the job, and the path of its master; or this word instead of the
# path, for a kept program.
_KEPT: Final = "kept"
# The bridge is in a higher layer, so it is not imported: it runs as a process of its own.
_BRIDGE: Final = "acpterm.commands.bridge"


class SshProvider:
    """Runs programs on the host of `place`; `name` is the provider's, such as `ssh:build1`."""

    def __init__(self, name: str, place: SshPlace, daemon: Daemon | None = None) -> None:
        self.name: Final = name
        self._place: Final = place
        self._host: Final = place.host or name.partition(":")[2]
        self._daemon: Final = daemon
        self._programs: dict[str, SshProgram] = {}
        self._made: Connections | None = None
        self._made_keeper: RemoteKeeper | None = None

    @property
    def _connections(self) -> Connections:
        if self._made is None:
            directory = private_directory("ssh", self.name, self._daemon)
            self._made = Connections(self._place, self._host, directory)
        return self._made

    @property
    def _keeper(self) -> RemoteKeeper:
        if self._made_keeper is None:
            directory = private_directory("ssh", self.name, self._daemon)
            self._made_keeper = RemoteKeeper(self._place, self._connections, directory)
        return self._made_keeper

    async def run(self) -> None:
        """Run the connections until cancelled; then close them."""
        try:
            connections, keeper = self._connections, self._keeper
        except ProviderError:
            # Each later use of the provider raises this error again.
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connections.run)
            nursery.start_soon(keeper.run)

    def end_session(self, session: str) -> None:
        """Do nothing: this provider has no resources that only one agent's session uses."""

    async def prepare(self, command: Command) -> Prepared:
        """Send the job to the host, and return the argv of the client: ssh, or a bridge."""
        connections = self._connections
        identifier = os.urandom(16).hex()
        directory = remote_directory(command.cwd, self._place.directories)
        token = ""
        try:
            is_kept = self._place.keeper is not False and await self._keeper.ready() is None
            control = await connections.answering_control()
            # From `free_master` to `self.program`, which counts the session, nothing is awaited: so
            # no other caller gets the same session.
            if is_kept:
                token = f"{identifier} {_KEPT}"
                argv = self._bridge_argv(identifier)
            else:
                master = await connections.free_master()
                token = f"{identifier} {master.path}"
                words = f"/bin/sh -c '{UNLESS_REMOVED}' sh {connections.run_words} {identifier}"
                argv = master.argv("-tt", command=f"exec {words}")
            self.program(token)
            job = lines(command, directory, identifier)
            await control.send(f"job 0 {identifier} {len(job)}", job)
        except BaseException as error:
            if (begun := self._programs.pop(token, None)) is not None:
                begun.ended()
            if isinstance(error, ControlLostError):
                raise ProviderError(f"{self._host}: {error}") from error
            raise
        return Prepared(argv, None, client_environment(command.env), "/", token, self._host)

    def _bridge_argv(self, identifier: str) -> list[str]:
        """Return the argv of the bridge to the terminal of a job on the other host."""
        # The last word of the command is the path of the scripts' directory there.
        directory = self._connections.run_words.rpartition(" ")[2]
        limit = f"{self._place.lost_after:g}"
        words = [self._keeper.socket, limit, terminal_name(identifier)]
        job = ["/bin/sh", f"{directory}/kept", identifier]
        checked = ["/bin/sh", "-c", UNLESS_REMOVED, "sh", *job]
        return [sys.executable, "-P", "-m", _BRIDGE, *words, *checked]

    def program(self, token: str) -> SshProgram:
        """Return the program of a terminal, also of an earlier worker's."""
        if token not in self._programs:
            identifier, _, master = token.partition(" ")
            connections, limit = self._connections, self._place.lost_after
            self._programs[token] = (
                KeptProgram(connections, identifier, self._keeper, limit)
                if master == _KEPT
                else SshProgram(connections, identifier, master)
            )
        return self._programs[token]

    async def clean_up(self, token: str) -> None:
        """Remove a job's files, and kept terminal, from the host, or later. Does not raise."""
        program = self._programs.pop(token, None)
        if program is not None:
            program.ended()
        identifier, _, master = token.partition(" ")
        with trio.move_on_after(_CLEAN_UP_TIMEOUT_S):
            if master == _KEPT:
                await self._keeper.forget(identifier)
                return
            try:
                control = await self._connections.control()
                await control.send(f"forget 0 {identifier}")
            except (ProviderError, ControlLostError):
                # Without beats, the host ends the programs and removes the files by itself.
                pass

    async def check(self) -> str:
        """Connect to the host and send a request; return a line for the user."""
        async with trial_directory(self._host) as directory:
            connections = Connections(self._place, self._host, directory)
            return await self._check(connections, RemoteKeeper(self._place, connections, directory))

    async def _check(self, connections: Connections, keeper: RemoteKeeper) -> str:
        failure: Exception | None = None
        kept = ""
        times = [time.monotonic()]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connections.run)
            nursery.start_soon(keeper.run)
            try:
                control = await connections.control()
                times.append(time.monotonic())
                await control.request("exit", "check", timeout_s=self._place.connect_timeout)
                times.append(time.monotonic())
                if self._place.keeper is not False:
                    problem = await keeper.ready()
                    kept = f"; terminals are not kept there: {problem}"
                    if problem is None:
                        kept = f"; terminals are kept there by acpterm {keeper.version}"
            except (ProviderError, ControlLostError) as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise ProviderError(str(failure)) from failure
        connected, answered = (1000 * (after - before) for before, after in pairwise(times))
        took = f"connected in {connected:.0f} ms, answers in {answered:.1f} ms"
        return f"{self._host}: {took}{kept}"
