"""The program of one terminal on a host reached by ssh. Implements `terminal.remote.RemoteProgram`.

The keeper on this machine runs a client of the program. For an `SshProgram`, the client is ssh. For
a `KeptProgram`, it is a bridge to the daemon on the other host (`remote_keeper`). The bridge exits
with the same codes as ssh, or by SIGHUP if the connection was lost for too long.
"""

import contextlib
import math
from collections.abc import Callable
from typing import Final

import trio

from acpterm.providers.provider import ProviderError
from acpterm.providers.ssh.connections import Connections
from acpterm.providers.ssh.control import NUMBER, ControlLostError
from acpterm.providers.ssh.remote_keeper import RemoteKeeper
from acpterm.pty.signals import name_of, number_of
from acpterm.terminal.remote import RemoteExit
from acpterm.terminal.status import EndedBy

LOST: Final = RemoteExit(255, None, EndedBy.LOST)
"""The exit of a program about which nothing is known, since its host cannot be reached."""
# A code up to this one is the program's own. A shell uses higher ones to report a signal.
_CERTAIN_MAX: Final = 127
# The code of ssh when the connection is lost; a program may exit with it too.
_UNKNOWN_CODE: Final = 255
_REPLY_TIMEOUT_S: Final = 5.0
# A busy host may need this time to find and to end all processes of a program.
_KILL_TIMEOUT_S: Final = 15.0
# The maximum wait for the connection of a kept program, and the pause between two requests for its
# exit status.
_CONNECT_TIMEOUT_S: Final = 2.0
_EXIT_PAUSE_S: Final = 0.5


class SshProgram:
    """A program in a session of the master at the path `master`, counted until `ended`."""

    def __init__(self, connections: Connections, identifier: str, master: str) -> None:
        self._connections: Final = connections
        self._identifier: Final = identifier
        self._master: Final = master
        self._is_counted = True
        self._is_being_ended = False
        self._count(1)

    @property
    def host(self) -> str:
        """The name of the host."""
        return self._connections.host

    def ended(self) -> None:
        """Record that the program has ended: another one can use its session. Idempotent."""
        if self._is_counted:
            self._is_counted = False
            self._count(-1)

    def _count(self, change: int) -> None:
        self._connections.count(self._master, change)

    @property
    def is_queued(self) -> bool:
        """False: a host starts a program at once."""
        return False

    @property
    def answers_queries(self) -> bool:
        """False: ssh passes the program's queries on to the emulator of this machine."""
        return False

    async def follow(self, changed: Callable[[], object]) -> None:
        """Wait until cancelled: when the program ends, its client ends by itself."""
        del changed
        await trio.sleep_forever()

    async def end(self, grace: float) -> bool:
        """End the program and its descendants; return whether none is known to be left."""
        self._is_being_ended = True
        return await self._end(grace) == "ended"

    async def _end(self, grace: float) -> str | None:
        words = f"{self._identifier} {round(10 * grace)}"
        return await self._ask("end", words, grace + _KILL_TIMEOUT_S)

    async def signal(self, number: int) -> bool:
        """Send a signal to the foreground process group; False if the host cannot be reached."""
        name = name_of(number).removeprefix("SIG")
        word = name if name.isalnum() and not name.isdigit() else str(number)
        return await self._ask("signal", f"{self._identifier} {word}", _REPLY_TIMEOUT_S) == "yes"

    async def exit(self, code: int | None, signal: str | None) -> RemoteExit:
        """Return how the program ended, from the exit status of ssh, or else from the host."""
        # A code up to 127 is the program's own.
        self.ended()
        if signal is None and code is not None and code <= _CERTAIN_MAX:
            return RemoteExit(code, None)
        reply: str | None = None
        if self._connections.is_alive(self._master):
            reply = await self._ask("exit", self._identifier, _REPLY_TIMEOUT_S)
        return await self._read_exit(reply, code)

    async def _read_exit(self, reply: str | None, code: int | None) -> RemoteExit:
        """Return how the program ended, from the host's reply, or from `code`; else `LOST`."""
        # A program that still runs there is ended.
        if reply is None and code is not None and code != _UNKNOWN_CODE:
            return RemoteExit(code, None)
        match (reply or "").split():
            case ["code", number] if NUMBER.fullmatch(number):
                return RemoteExit(int(number), None)
            case ["signal", number, *names] if NUMBER.fullmatch(number):
                return RemoteExit(None, _signal_name(int(number), names))
            case ["gone"]:
                # Only SIGKILL ends the script that waits for the program and records its exit.
                return RemoteExit(None, "SIGKILL")
            case ["running"]:
                # The client was killed, or lost its connection: nothing reads the program's output.
                if await self._end(0.0) == "ended" and self._is_being_ended:
                    return RemoteExit(None, "SIGKILL")
        return LOST

    async def _ask(self, verb: str, words: str, timeout_s: float) -> str | None:
        with contextlib.suppress(ProviderError, ControlLostError):
            control = await self._connections.control()
            return await control.request(verb, words, timeout_s=timeout_s)
        return None


class KeptProgram(SshProgram):
    """A program in a terminal of the other host's daemon; it survives a lost connection."""

    # If `end` or `exit` (within `limit_s`) does not reach the other host, the program is
    # *abandoned*: `keeper` ends it once there is a connection again.

    def __init__(
        self, connections: Connections, identifier: str, keeper: RemoteKeeper, limit_s: float
    ) -> None:
        self._keeper: Final = keeper
        self._limit_s: Final = limit_s
        super().__init__(connections, identifier, "")

    def _count(self, change: int) -> None:
        if change > 0:
            self._keeper.keep(self._identifier)
        else:
            self._keeper.let_go(self._identifier)

    @property
    def answers_queries(self) -> bool:
        """True: the emulator of the daemon on the other host answers the program's queries."""
        return True

    async def _end(self, grace: float) -> str | None:
        reply = await super()._end(grace)
        if reply is None:
            self._keeper.abandon(self._identifier)
        return reply

    async def exit(self, code: int | None, signal: str | None) -> RemoteExit:
        """Return how the program ended, from the bridge's exit status, or else from the host."""
        # Asked until it replies: for `limit_s`, or for `_CONNECT_TIMEOUT_S` if a signal ended the
        # bridge.
        reply: str | None = None
        if signal is None and code is not None and code <= _CERTAIN_MAX:
            self.ended()
            return RemoteExit(code, None)
        # If no signal ended the bridge, it has exited because the program has exited. Then the
        # program's exit status is worth waiting for.
        with trio.move_on_after(self._limit_s if signal is None else _CONNECT_TIMEOUT_S):
            while reply is None:
                reply = await self._ask("exit", self._identifier, _REPLY_TIMEOUT_S)
                if reply is None:
                    await trio.sleep(_EXIT_PAUSE_S)
        if reply is None:
            self._keeper.abandon(self._identifier)
        found = await self._read_exit(reply, code)
        self.ended()
        return found

    async def _ask(self, verb: str, words: str, timeout_s: float) -> str | None:
        with trio.move_on_after(_CONNECT_TIMEOUT_S) as scope, contextlib.suppress(ProviderError):
            await self._connections.control()
            scope.deadline = math.inf
            return await super()._ask(verb, words, timeout_s)
        return None


def _signal_name(number: int, names: list[str]) -> str:
    # The other host may number signals differently, so its name is preferred.
    with contextlib.suppress(ValueError, IndexError):
        return name_of(number_of(names[0]))
    return name_of(number)
