"""The provider of one host that OpenSSH's client reaches. Implements `provider.RemoteProvider`.

Order of events: `prepare` sends a job over the control channel, and returns the argv of an `ssh`
that runs it in a new session of a master connection. The keeper runs this `ssh` on the terminal's
PTY, so output, input, window size and hang-up are passed on by OpenSSH, whether this worker lives
or not. `clean_up` removes what is left of the job.

If the connection is lost, the PTY over there hangs up, and the program is ended there; its terminal
has exited here, as lost.
"""

import os
import shutil
import tempfile
import time
from itertools import pairwise
from typing import Final

import trio

from acpterm.config.places import SshPlace
from acpterm.providers.place_files import client_environment, private_directory
from acpterm.providers.provider import Command, Isolation, Prepared, ProviderError
from acpterm.providers.ssh.connections import Connections
from acpterm.providers.ssh.control import ControlLostError
from acpterm.providers.ssh.job import lines, remote_directory
from acpterm.providers.ssh.program import SshProgram
from acpterm.pty.tracking.marks import Daemon

_CLEAN_UP_TIMEOUT_S: Final = 3.0


class SshProvider:
    """Runs programs on the host of `place`; `name` is the provider's, such as `ssh:build1`.

    `daemon` identifies the daemon, whose next worker finds the connections; None for a provider
    that is only checked.
    """

    isolation: Final[Isolation] = "none"

    def __init__(self, name: str, place: SshPlace, daemon: Daemon | None = None) -> None:
        self.name: Final = name
        self._place: Final = place
        self._host: Final = place.host or name.partition(":")[2]
        self._daemon: Final = daemon
        self._programs: dict[str, SshProgram] = {}
        self._made: Connections | None = None

    @property
    def _connections(self) -> Connections:
        """The connections. Raises `ProviderError` if there can be no private directory for them."""
        if self._made is None:
            self._made = Connections(
                self._place, self._host, private_directory("ssh", self.name, self._daemon)
            )
        return self._made

    async def run(self) -> None:
        """Run the connections until cancelled; then close them."""
        try:
            connections = self._connections
        except ProviderError:
            # Each use of the provider raises it again.
            await trio.sleep_forever()
        else:
            await connections.run()

    def end_session(self, session: str) -> None:
        """Do nothing: connections do not belong to sessions."""

    async def prepare(self, command: Command) -> Prepared:
        """Return what the keeper runs for a command. Raises `ProviderError`."""
        connections = self._connections
        identifier = os.urandom(16).hex()
        directory = remote_directory(command.cwd, self._place.directories)
        control = await connections.control()
        master = await connections.take()
        # Counted before the next await, so that no other caller takes the same session.
        token = f"{identifier} {master.path}"
        program = SshProgram(connections, identifier, master.path)
        job = lines(command, directory, identifier)
        try:
            await control.send(f"job 0 {identifier} {len(job)}", job)
        except BaseException as error:
            program.ended()
            if isinstance(error, ControlLostError):
                raise ProviderError(f"{self._host}: {error}") from error
            raise
        self._programs[token] = program
        return Prepared(
            master.argv("-tt", command=f"exec {connections.run_words} {identifier}"),
            None,
            client_environment(command.env),
            "/",
            token,
            self._host,
        )

    def program(self, token: str) -> SshProgram:
        """Return the program of a terminal; `token` may be from an earlier worker."""
        if token not in self._programs:
            identifier, _, master = token.partition(" ")
            self._programs[token] = SshProgram(self._connections, identifier, master)
        return self._programs[token]

    async def clean_up(self, token: str) -> None:
        """Remove what is left of a terminal on the host, if it can be reached. Does not raise."""
        program = self._programs.pop(token, None)
        if program is not None:
            program.ended()
        identifier = token.partition(" ")[0]
        with trio.move_on_after(_CLEAN_UP_TIMEOUT_S):
            try:
                control = await self._connections.control()
                await control.send(f"forget 0 {identifier}")
            except (ProviderError, ControlLostError):
                # The host ends what is left by itself.
                pass

    async def check(self) -> str:
        """Connect, run a command, and return a line with the time that each takes.

        Raises `ProviderError`.
        """
        directory = tempfile.mkdtemp(prefix="acpterm-ssh-")
        try:
            return await self._check(Connections(self._place, self._host, directory))
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    async def _check(self, connections: Connections) -> str:
        failure: Exception | None = None
        times = [time.monotonic()]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connections.run)
            try:
                control = await connections.control()
                times.append(time.monotonic())
                await control.request("exit", "check", timeout_s=self._place.connect_timeout)
                times.append(time.monotonic())
            except (ProviderError, ControlLostError) as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise ProviderError(str(failure)) from failure
        connected, answered = (1000 * (after - before) for before, after in pairwise(times))
        return f"{self._host}: connected in {connected:.0f} ms, answers in {answered:.1f} ms"
