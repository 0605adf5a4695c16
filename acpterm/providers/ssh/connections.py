"""All connections to one host: master connections with their sessions, and one control channel.

A server limits the number of sessions in each connection (`MaxSessions`, 10 by default). One
session is for the control channel. When all others are in use, another master connection is made.
Connections are made one at a time. If one fails, all callers that wait for it get the same error,
so a host that does not answer delays each caller only once.

The local directory is private, and its name depends on the daemon and the place. It has the
masters' sockets, and a file with the name of the directory on the other host, so the next worker
finds both.

What can go wrong:

- A master dies: the next program gets another one.
- The control channel is lost: the next request opens another one, over any master.
- This worker dies: its successor opens the control channel again, before the other host concludes
  from the silence that the connection is lost.
- A program is requested while idle connections are being closed: it waits, and gets new ones.
- No more data passes through a connection: a new program is refused after `connect_timeout`.
"""

import contextlib
import itertools
import math
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import trio

from acpterm.config.places import SshPlace
from acpterm.providers.guarded_tasks import keep_running
from acpterm.providers.provider import ProviderError
from acpterm.providers.ssh import scripts
from acpterm.providers.ssh.control import Control, ControlLostError
from acpterm.providers.ssh.master import ControlMaster, users_master

_BEATS_PER_TIMEOUT: Final = 6
_IDLE_S: Final = 600.0
_QUIT_TIMEOUT_S: Final = 1.0
_REMOTE_NAME: Final = re.compile(r"acpterm-[0-9a-f]{32}")

_log = structlog.get_logger("acpterm.provider")


class Connections:
    """The connections to a host. Methods that open one wait until `run` has begun."""

    def __init__(self, place: SshPlace, host: str, directory: str) -> None:
        self.host: Final = host
        self._place: Final = place
        self._directory: Final = directory
        self._masters: dict[str, ControlMaster] = {}
        self._control: Control | None = None
        self.kept: Final[set[str]] = set()
        """The ids of kept programs' jobs, which need no session; `remote_keeper` changes them."""
        self.run_words = ""
        """The command on the other host that runs the job whose id is appended; empty at first."""
        self._nursery: trio.Nursery | None = None
        self._running: Final = trio.Event()
        self._connecting: Final = trio.Lock()
        self._failure: ProviderError | None = None
        self._failures = 0
        self._used_at = trio.current_time()

    def is_alive(self, master: str) -> bool:
        """Return whether the master with the socket path `master` is known here and listens."""
        return (found := self._masters.get(master)) is not None and found.is_alive()

    def count(self, master: str, change: int) -> None:
        """Add `change` to the number of sessions of the master with the socket path `master`."""
        if (found := self._masters.get(master)) is None:
            # An earlier worker has started this master.
            is_ours = os.path.dirname(master) == self._directory
            found = ControlMaster(self._place, self.host, master, is_ours=is_ours)
            self._masters[master] = found
        found.sessions += change
        self._used_at = trio.current_time()

    async def run(self) -> None:
        """Send beats and close idle connections until cancelled; then end everything."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._running.set()
            try:
                # An error must not leave this block, since `_close` ends the programs there.
                await keep_running(f"beats of {self.host}", self._keep)
            finally:
                # From now on, no caller can open another control channel.
                self._nursery = None
                with trio.CancelScope(shield=True):
                    await self._close(ends_programs=True)

    async def _keep(self) -> None:
        while True:
            await trio.sleep(self._place.lost_after / _BEATS_PER_TIMEOUT)
            if self._is_idle:
                async with self._connecting:
                    # A caller may have used the connections while this task waited.
                    if self._is_idle:
                        await self._close()
            else:
                await self._beat()

    @property
    def _has_programs(self) -> bool:
        return bool(self.kept) or any(master.sessions for master in self._masters.values())

    @property
    def _is_idle(self) -> bool:
        is_recent = trio.current_time() - self._used_at <= _IDLE_S
        return bool(self._masters) and not self._has_programs and not is_recent

    async def _beat(self) -> None:
        """Send a sign of life, without which the other host ends the programs."""
        # A lost control channel is opened again only while programs run there.
        control = self._control
        try:
            if control is None or control.is_lost:
                if not self._has_programs:
                    return
                control = await self.control()
            await control.send(f"beat 0 {time.time_ns()}")
        except (ProviderError, ControlLostError) as error:
            _log.warning("a host cannot be reached", host=self.host, problem=str(error))

    async def _close(self, *, ends_programs: bool = False) -> None:
        """Remove acpterm's scripts on the host, and perhaps end its programs; end own masters."""
        # Callers get new connections from now on.
        control, self._control = self._control, None
        masters = list(self._masters.values())
        self._masters.clear()
        if control is not None:
            with trio.move_on_after(_QUIT_TIMEOUT_S), contextlib.suppress(ControlLostError):
                await control.send("quit 0 all" if ends_programs else "quit 0")
                await control.closed.wait()
            control.stop()
        async with trio.open_nursery() as nursery:
            for master in masters:
                nursery.start_soon(master.stop)

    async def control(self) -> Control:
        """Return the control channel, opened if necessary. Raises `ProviderError`."""
        self._used_at = trio.current_time()
        control = self._control
        if control is not None and not control.is_lost:
            await trio.lowlevel.checkpoint()
            return control
        await self._exclusively(self._open_control)
        assert self._control is not None  # noqa: S101  `_open_control` has set it
        return self._control

    async def answering_control(self) -> Control:
        """Return the control channel of a host that answers. Raises `ProviderError`."""
        # A program on a connection that is silently lost would wait until ssh notices the loss.
        control = await self.control()
        if await control.answers(self._place.connect_timeout):
            return control
        if control.is_lost:
            return await self.control()
        control.stop()
        timeout = f"{self._place.connect_timeout:g} s"
        raise ProviderError(f"no connection to {self.host}: it did not answer within {timeout}")

    async def free_master(self) -> ControlMaster:
        """Return a master with a free session, connected if necessary."""
        # The caller must call `count` before it awaits anything, or another one gets the same
        # session.
        self._used_at = trio.current_time()
        await trio.lowlevel.checkpoint()
        # Nothing is awaited from here to the return, so no other caller gets the same session.
        if (found := self._find_free()) is not None:
            return found
        await self._exclusively(self._connect)
        found = self._find_free()
        if found is None:
            raise ProviderError(f"the connection to {self.host} was lost at once")
        return found

    def _find_free(self) -> ControlMaster | None:
        for path, master in list(self._masters.items()):
            if master.sessions >= self._place.sessions - 1:
                continue
            if master.is_alive():
                return master
            if not master.sessions:
                del self._masters[path]
        return None

    async def _exclusively(self, work: Callable[[], Awaitable[None]]) -> None:
        """Call `work`, which connects, unless another caller has just failed: raise that."""
        await self._running.wait()
        failures = self._failures
        async with self._connecting:
            if self._failures > failures and self._failure is not None:
                raise ProviderError(str(self._failure))
            try:
                await work()
            except ProviderError as error:
                self._failures += 1
                self._failure = error
                raise
        self._used_at = trio.current_time()

    async def _connect(self) -> None:
        """Make sure that there is a master with a free session, rather an old than a new one."""
        if not self._masters:
            self._find_masters()
        if self._find_free() is not None:
            return
        users, options = await users_master(self._place, self.host)
        if users is not None and users.path not in self._masters:
            self._masters[users.path] = users
            return
        paths = (os.path.join(self._directory, str(number)) for number in itertools.count())
        master = ControlMaster(
            self._place, self.host, next(p for p in paths if p not in self._masters)
        )
        await master.start(options)
        self._masters[master.path] = master

    def _find_masters(self) -> None:
        """Add the masters that an earlier worker has started, and that still listen."""
        try:
            names = os.listdir(self._directory)
        except OSError as error:
            raise ProviderError(f"{self._directory}: cannot be read: {error}") from error
        for name in filter(str.isdigit, names):
            master = ControlMaster(self._place, self.host, os.path.join(self._directory, name))
            if master.is_alive():
                self._masters[master.path] = master

    async def _open_control(self) -> None:
        if self._control is not None and not self._control.is_lost:
            return
        if not any(master.is_alive() for master in self._masters.values()):
            await self._connect()
        alive = next((one for one in self._masters.values() if one.is_alive()), None)
        if alive is None or self._nursery is None:
            raise ProviderError(f"the connection to {self.host} was lost at once")
        control = Control(alive)
        limit = math.ceil(self._place.lost_after)
        script = scripts.control(self._remote_name(), limit, str(time.time_ns()))
        try:
            with trio.fail_after(self._place.connect_timeout):
                words: str = await self._nursery.start(control.run, script)
        except trio.TooSlowError:
            raise ProviderError(
                f"{self.host} did not start a shell within {self._place.connect_timeout:g} s"
            ) from None
        self.run_words, self._control = words, control

    def _remote_name(self) -> str:
        """Return the name of this daemon's directory in /tmp on the other host."""
        # Random, so that other users cannot guess it; stored in a local file.
        path = os.path.join(self._directory, "remote")
        with contextlib.suppress(OSError), open(path) as file:
            if _REMOTE_NAME.fullmatch(name := file.read()):
                return name
        name = f"acpterm-{secrets.token_hex(16)}"
        try:
            with open(path, "w") as file:
                file.write(name)
        except OSError as error:
            raise ProviderError(f"{path}: cannot be written: {error}") from error
        return name
