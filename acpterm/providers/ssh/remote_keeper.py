"""Uses acpterm's daemon on the other host to keep programs while the connection is lost.

Roles:

- The daemon on the other host owns the terminal of a *kept* program: its PTY and its output. A kept
  program is started from a job, like any other program on that host (`scripts`). So this worker
  uses the control channel to end a kept program, to signal it, and to get its exit status. The
  *control channel* (`control`) is an SSH session in which a script on the other host serves such
  requests.
- A *bridge* (`client.user.bridge`) is the local program of the terminal. The keeper on this machine
  runs it on the local PTY, so it outlives this worker. It passes output, input and window size on.
  If the bridge loses its connection to the daemon, it connects again as soon as that is possible,
  and continues the output at the exact position that it had reached.
- This worker owns the *route* to the daemon on the other host: the master connection, and in it a
  forward of a local socket to the user's socket of that daemon. While there is a kept program,
  `RemoteKeeper.run` opens a lost route again, after pauses that grow.

States of the route: *open*, while this worker has a connection through the forward (`keeper_link`);
*lost*, otherwise. States of a program: *kept*, from its creation until it has exited; *abandoned*,
if the program has to be ended or its terminal removed, but the route is lost.

A program that is no longer wanted must not run on without end. It is ended in one of these ways:

- Kill and release end it through the control channel. If that fails because the connection is
  lost, the program is abandoned: this is recorded in a file, and this worker or the next one ends
  the program as soon as the route is open again.
- If the other host receives no beat (a sign of life: see `connections`) for `lost_timeout`, it ends
  the program.
- If the keeper on this machine dies, the bridge gets SIGHUP, and releases the remote terminal.

What can go wrong:

- The route is lost and opened again: the program does not notice, and its output continues.
- The route stays lost for `lost_timeout`: the bridge ends itself by SIGHUP, the terminal's exit
  is reported as `lost`, and the program is abandoned.
- The program exits while the route is lost: its output and exit status are fetched later.
- The worker dies while the route is lost: its successor opens the route.
- The daemon on the other host has ended, and its programs with it: the next call of
  `RemoteKeeper.ready` starts another daemon.
"""

import contextlib
import os
from typing import Final

import structlog
import trio

from acpterm.config.places import SshPlace
from acpterm.providers.guarded_tasks import keep_running, run_guarded
from acpterm.providers.provider import ProviderError
from acpterm.providers.ssh.connections import Connections
from acpterm.providers.ssh.control import Control, ControlLostError
from acpterm.providers.ssh.keeper_link import KeeperLink, UnusableError, open_link, read_status
from acpterm.providers.ssh.master import ControlMaster

_PAUSE_S: Final = 0.2
_PAUSE_MAX_S: Final = 10.0
_CHECK_S: Final = 5.0
# Longer than acpterm waits for its daemon to start.
_START_TIMEOUT_S: Final = 35.0
_LINK_TIMEOUT_S: Final = 10.0
_END_TIMEOUT_S: Final = 10.0
# After acpterm on the host could not be used, this time passes before the next attempt.
_UNUSABLE_S: Final = 60.0
_GRACE_TENTHS: Final = 20
_MARKER: Final = "abandoned-"

_log = structlog.get_logger("acpterm.provider")


class RemoteKeeper:
    """Keeps programs in the daemon on the other host, and keeps the route to that daemon open."""

    def __init__(self, place: SshPlace, connections: Connections, directory: str) -> None:
        self.socket: Final = os.path.join(directory, "keeper")
        """The path of the local socket to which bridges connect.

        ssh forwards these connections to the daemon on the other host.
        """
        self.version = "?"
        """The version of acpterm on the host; `?` until this worker has requested it."""
        self._place: Final = place
        self._connections: Final = connections
        self._directory: Final = directory
        self._abandoned: dict[str, float] = {}
        self._forward: tuple[ControlMaster, str] | None = None
        self._link: KeeperLink | None = None
        self._unusable: tuple[Control, float, str] | None = None
        self._opening: Final = trio.Lock()
        self._wanted: Final = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery | None = None
        self._running: Final = trio.Event()

    @property
    def is_open(self) -> bool:
        """Whether the route is open. Also true after a loss that was not noticed yet."""
        return self._link is not None and not self._link.closed.is_set()

    def keep(self, identifier: str) -> None:
        """Record a program that the other daemon keeps, for which `run` opens the route."""
        self._connections.kept.add(identifier)
        self._wanted.unpark_all()

    def let_go(self, identifier: str) -> None:
        """Record that the route need not be kept open for a program any more. Idempotent."""
        if identifier not in self._abandoned:
            self._connections.kept.discard(identifier)

    def abandon(self, identifier: str) -> None:
        """Record, in a file, that `run` must end a program and remove its terminal."""
        # Dropped after `lost_timeout`: by then the other host has ended the program.
        with contextlib.suppress(OSError), open(self._marker(identifier), "w"):
            pass
        deadline = trio.current_time() + self._place.lost_after
        self._abandoned.setdefault(identifier, deadline)
        self.keep(identifier)

    def _marker(self, identifier: str) -> str:
        return os.path.join(self._directory, f"{_MARKER}{identifier}")

    async def run(self) -> None:
        """Keep the route open while there are kept programs, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._running.set()
            try:
                await keep_running(f"keeper of {self._connections.host}", self._work)
            finally:
                with trio.CancelScope(shield=True):
                    await self._close()

    async def _work(self) -> None:
        for name in os.listdir(self._directory):
            if name.startswith(_MARKER):
                self.abandon(name.removeprefix(_MARKER))
        while True:
            await self._stay_open()
            await self._wanted.park()

    async def _stay_open(self) -> None:
        pause = _PAUSE_S
        while self._connections.kept:
            try:
                await self.ready()
                await self._settle()
            except (ProviderError, ControlLostError) as error:
                _log.debug("a host cannot be reached", host=self._connections.host, why=str(error))
            if self._link is not None and self.is_open:
                pause = _PAUSE_S
                with trio.move_on_after(_CHECK_S):
                    await self._link.closed.wait()
            else:
                await trio.sleep(pause)
                pause = min(2 * pause, _PAUSE_MAX_S)
            for identifier, deadline in list(self._abandoned.items()):
                if trio.current_time() > deadline:
                    # The host has received no beat for `lost_timeout`, so it has ended the program.
                    self._settled(identifier)

    async def _close(self) -> None:
        if self._forward is not None and not self._forward[0].is_ours:
            master, there = self._forward
            await master.cancel_forward(self.socket, there)
        with contextlib.suppress(OSError):
            os.unlink(self.socket)
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def ready(self) -> str | None:
        """Open the route if necessary; return why acpterm there cannot be used, or None."""
        await self._running.wait()
        async with self._opening:
            if self.is_open:
                return None
            try:
                await self._open()
            except UnusableError as error:
                return str(error)
        return None

    async def _open(self) -> None:
        control = await self._connections.control()
        if self._unusable is not None:
            asked, until, text = self._unusable
            if asked is control and trio.current_time() < until:
                raise UnusableError(text)
        with contextlib.suppress(ProviderError):
            # A forward may exist: that of an earlier worker, or of a master that was not lost.
            self._use(await open_link(self.socket, _LINK_TIMEOUT_S))
            return
        try:
            # The command is the last word of the request, since its path may have spaces.
            command = self._place.keeper if isinstance(self._place.keeper, str) else "acpterm"
            reply = await control.request("keeper", f"- {command}", timeout_s=_START_TIMEOUT_S)
            self.version, there = read_status(reply)
            await self._open_forward(control.master, there)
        except UnusableError as error:
            self._unusable = control, trio.current_time() + _UNUSABLE_S, str(error)
            _log.warning(
                "terminals are not kept there", host=self._connections.host, why=str(error)
            )
            raise

    async def _open_forward(self, master: ControlMaster, there: str) -> None:
        # Otherwise ssh would ignore the request for a forward that it has already.
        await master.cancel_forward(self.socket, there)
        with contextlib.suppress(OSError):
            os.unlink(self.socket)
        try:
            await master.forward(self.socket, there)
            self._forward = master, there
            link = await open_link(self.socket, _LINK_TIMEOUT_S)
        except ProviderError as error:
            if not master.is_alive():
                raise
            raise UnusableError(str(error)) from error
        self._use(link)

    def _use(self, link: KeeperLink) -> None:
        self._link = link
        assert self._nursery is not None  # noqa: S101  `ready` has waited for it
        self._nursery.start_soon(run_guarded, "link to a keeper", link.run)

    async def forget(self, identifier: str) -> None:
        """Remove the terminal and the files of a job on the other host, or abandon it."""
        is_forgotten = False
        try:
            with contextlib.suppress(ProviderError, ControlLostError):
                is_forgotten = await self.ready() is None and await self._forget(identifier)
        finally:
            if not is_forgotten:
                self.abandon(identifier)

    async def _forget(self, identifier: str) -> bool:
        control = await self._connections.control()
        await control.send(f"forget 0 {identifier}")
        return self._link is not None and await self._link.release(identifier)

    async def _settle(self) -> None:
        """End all abandoned programs, and remove their terminals on the other host."""
        for identifier in list(self._abandoned):
            control = await self._connections.control()
            words = f"{identifier} {_GRACE_TENTHS}"
            await control.request("end", words, timeout_s=_END_TIMEOUT_S)
            if not await self._forget(identifier):
                return
            self._settled(identifier)

    def _settled(self, identifier: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._marker(identifier))
        self._abandoned.pop(identifier, None)
        self._connections.kept.discard(identifier)
