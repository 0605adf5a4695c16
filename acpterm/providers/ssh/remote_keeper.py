"""acpterm's daemon on the other host, which keeps terminals there while the connection is lost.

Who does what:

- The other host's daemon owns the terminal of a *kept* program: its PTY and its output. There the
  program is the same job as without the daemon (`scripts`), so it is ended, signalled and asked how
  it ended through the control channel, too.
- A *bridge* (`client.user.bridge`) is the local program of the terminal. The keeper here runs it on
  the local PTY, so it outlives this worker. It passes output, input and window size on, from an
  exact position, and connects again by itself whenever its socket accepts connections.
- This worker owns the way there: the master connection, and in it a forward of a local socket to
  the user's socket of the other daemon. `RemoteKeeper.run` opens both again after a loss, with a
  pause that grows, while there is a kept program.

States of the way: *open*, while a connection of our own through the forward is (`keeper_link`);
*lost*, otherwise. States of a program: *kept*, from its creation until it has exited; *abandoned*,
if it was to be ended, or forgotten, while the way was lost.

What ends a program that is not wanted here any more, so that none is left running without end:

- Kill and release end it through the control channel. If the way is lost, the program is abandoned:
  a file says so, and the program is ended as soon as the way is open again, also by another worker.
- The beats of `connections` are its lease: without one for `lost_timeout`, the other host ends it.
- The bridge gets SIGHUP when the keeper here has died, and then releases the terminal there.

Unhappy orders: the way is lost and opened again, then the program does not notice, and the output
continues; it stays lost for `lost_timeout`, then the bridge ends by SIGHUP, the terminal's exit is
`lost`, and the program is abandoned; the program exits meanwhile, then its output and exit status
are fetched later; the worker dies meanwhile, then its successor opens the way; the daemon there has
ended, then its programs have too, and the next `ready` starts another one.
"""

import contextlib
import json
import os
import re
from typing import Final

import structlog
import trio

from acpterm import __version__
from acpterm.config.places import SshPlace
from acpterm.providers.guarded_tasks import keep_running, run_guarded
from acpterm.providers.provider import ProviderError
from acpterm.providers.ssh.connections import Connections
from acpterm.providers.ssh.control import Control, ControlLostError
from acpterm.providers.ssh.keeper_link import KeeperLink, open_link
from acpterm.providers.ssh.master import Master

_PAUSE_S: Final = 0.2
_PAUSE_MAX_S: Final = 10.0
_CHECK_S: Final = 5.0
# The daemon there has ten seconds to start.
_START_TIMEOUT_S: Final = 15.0
_LINK_TIMEOUT_S: Final = 10.0
_END_TIMEOUT_S: Final = 10.0
# How long an acpterm that cannot be used is not looked for again.
_UNUSABLE_S: Final = 60.0
_GRACE_TENTHS: Final = 20
_MARKER: Final = "abandoned-"
_TEXT_MAX: Final = 200
# In the path of a forward, ssh replaces `%` and `${NAME}`, and a colon ends it.
_FORWARDABLE: Final = re.compile("/[A-Za-z0-9/_.@+,-]+")

_log = structlog.get_logger("acpterm.provider")


class _UnusableError(Exception):
    """The host has no acpterm that can be used; the message says why."""


class RemoteKeeper:
    """The daemon on the host of `connections`; `directory` is the private local directory.

    `run` must run while `ready` is called.
    """

    def __init__(self, place: SshPlace, connections: Connections, directory: str) -> None:
        self.socket: Final = os.path.join(directory, "keeper")
        """The path of the local socket of the forward, for bridges."""
        self.version = "?"
        """The version of acpterm on the host, once the way was opened by this worker."""
        self._place: Final = place
        self._connections: Final = connections
        self._directory: Final = directory
        self._abandoned: dict[str, float] = {}
        self._forward: tuple[Master, str] | None = None
        self._link: KeeperLink | None = None
        self._unusable: tuple[Control, float, str] | None = None
        self._opening: Final = trio.Lock()
        self._wanted = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._running: Final = trio.Event()

    @property
    def is_open(self) -> bool:
        """Whether the daemon there can be reached, as far as is known."""
        return self._link is not None and not self._link.closed.is_set()

    def keep(self, identifier: str) -> None:
        """Record that the program of a job is kept there."""
        self._connections.kept.add(identifier)
        self._wanted.set()

    def let_go(self, identifier: str) -> None:
        """Record that the program of a job has ended, unless it is abandoned. Idempotent."""
        if identifier not in self._abandoned:
            self._connections.kept.discard(identifier)

    def abandon(self, identifier: str) -> None:
        """End the program of a job, and forget it, as soon as the way is open again."""
        with contextlib.suppress(OSError), open(self._marker(identifier), "w"):
            pass
        deadline = trio.current_time() + self._place.lost_after
        self._abandoned.setdefault(identifier, deadline)
        self.keep(identifier)

    def _marker(self, identifier: str) -> str:
        return os.path.join(self._directory, f"{_MARKER}{identifier}")

    async def run(self) -> None:
        """Keep the way open while there are kept programs, until cancelled."""
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
            await self._wanted.wait()
            await self._stay_open()
            self._wanted = trio.Event()

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
                    # The host has ended it by itself.
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
        """Open the way if it is not open; return why there can be none, or None.

        Raises `ProviderError` and `ControlLostError` if the host cannot be reached.
        """
        await self._running.wait()
        async with self._opening:
            if self.is_open:
                return None
            try:
                await self._open()
            except _UnusableError as error:
                return str(error)
        return None

    async def _open(self) -> None:
        control = await self._connections.control()
        if self._unusable is not None:
            asked, until, text = self._unusable
            if asked is control and trio.current_time() < until:
                raise _UnusableError(text)
        with contextlib.suppress(ProviderError):
            # The forward of an earlier worker, or of a connection that was not lost.
            self._use(await open_link(self.socket, _LINK_TIMEOUT_S))
            return
        try:
            # The path is the last word, since it may have spaces.
            command = self._place.keeper if isinstance(self._place.keeper, str) else "acpterm"
            reply = await control.request("keeper", f"- {command}", timeout_s=_START_TIMEOUT_S)
            self.version, there = _read_status(reply)
            await self._open_forward(control.master, there)
        except _UnusableError as error:
            self._unusable = control, trio.current_time() + _UNUSABLE_S, str(error)
            _log.warning(
                "terminals are not kept there", host=self._connections.host, why=str(error)
            )
            raise

    async def _open_forward(self, master: Master, there: str) -> None:
        # A forward that the master has already would not be made again.
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
            raise _UnusableError(str(error)) from error
        self._use(link)

    def _use(self, link: KeeperLink) -> None:
        self._link = link
        assert self._nursery is not None  # noqa: S101  `ready` has waited for it
        self._nursery.start_soon(run_guarded, "link to a keeper", link.run)

    async def forget(self, identifier: str) -> None:
        """Remove the terminal of a job there, or do so when the way is open. Does not raise."""
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
        """End and forget what was abandoned."""
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


def _read_status(reply: str) -> tuple[str, str]:
    """Return the version of acpterm there, and the path of the user's socket there."""
    try:
        status = json.loads(reply)
        version, path = status["version"], status["userSocket"]
    except (ValueError, TypeError, KeyError, RecursionError):
        text = " ".join(reply.split())[-_TEXT_MAX:]
        raise _UnusableError(f"acpterm cannot be used there: {text}") from None
    if not isinstance(version, str) or _generation(version) != _generation(__version__):
        raise _UnusableError(f"acpterm {version} is there, and {__version__} here")
    if not isinstance(path, str) or not path.startswith("/"):
        raise _UnusableError("the daemon there has no socket for the user")
    if not _FORWARDABLE.fullmatch(path):
        raise _UnusableError(f"ssh cannot forward to the socket there: {path[:_TEXT_MAX]!r}")
    return version, path


def _generation(version: str) -> list[str]:
    """Return the part of a version that changes when versions may not fit together."""
    numbers = re.findall(r"\d+", version)
    return numbers[:2] if numbers[:1] == ["0"] else numbers[:1]
