"""The program of one terminal on a host that ssh reaches. Implements `terminal.remote`.

The client of an `SshProgram` is ssh, and that of a `KeptProgram` is a bridge to the other host's
daemon (`keeper`), which exits like ssh, or by SIGHUP if the connection was lost for too long.
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
# Codes up to this one are the program's own. A higher one may be a shell's for a signal.
_CERTAIN_MAX: Final = 127
# It may be the program's own, but also ssh's when the connection is lost.
_UNKNOWN_CODE: Final = 255
_REPLY_TIMEOUT_S: Final = 5.0
# A host that is busy needs as long as this to find and end all processes of a program.
_KILL_TIMEOUT_S: Final = 15.0
# How long an open connection may be waited for, and between two questions how a program has ended.
_CONNECT_TIMEOUT_S: Final = 2.0
_EXIT_PAUSE_S: Final = 0.5


class SshProgram:
    """A program; `identifier` is that of its job, and `master` the path of its connection."""

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
        """Record that the program's session has ended. Idempotent."""
        if self._is_counted:
            self._is_counted = False
            self._count(-1)

    def _count(self, change: int) -> None:
        self._connections.count(self._master, change)

    @property
    def is_queued(self) -> bool:
        """False: a host starts a program at once."""
        return False

    async def follow(self, changed: Callable[[], object]) -> None:
        """Wait until cancelled: nothing changes, and ssh ends with the program."""
        del changed
        await trio.sleep_forever()

    async def end(self, grace: float) -> bool:
        """End the program and its descendants; return whether none is left."""
        self._is_being_ended = True
        return await self._end(grace) == "ended"

    async def _end(self, grace: float) -> str | None:
        words = f"{self._identifier} {round(10 * grace)}"
        return await self._ask("end", words, grace + _KILL_TIMEOUT_S)

    async def signal(self, number: int) -> bool:
        """Send a signal to the foreground process group; return whether it was sent."""
        name = name_of(number).removeprefix("SIG")
        word = name if name.isalnum() and not name.isdigit() else str(number)
        return await self._ask("signal", f"{self._identifier} {word}", _REPLY_TIMEOUT_S) == "yes"

    async def exit(self, code: int | None, signal: str | None) -> RemoteExit:
        """Return how the program ended; `code` and `signal` are how ssh ended."""
        self.ended()
        if signal is None and code is not None and code <= _CERTAIN_MAX:
            return RemoteExit(code, None)
        reply: str | None = None
        if self._connections.is_alive(self._master):
            reply = await self._ask("exit", self._identifier, _REPLY_TIMEOUT_S)
        return await self._read_exit(reply, code)

    async def _read_exit(self, reply: str | None, code: int | None) -> RemoteExit:
        """Return what a reply says; without a reply, what the client's `code` says."""
        if reply is None and code is not None and code != _UNKNOWN_CODE:
            return RemoteExit(code, None)
        match (reply or "").split():
            case ["code", number] if NUMBER.fullmatch(number):
                return RemoteExit(int(number), None)
            case ["signal", number, *names] if NUMBER.fullmatch(number):
                return RemoteExit(None, _signal_name(int(number), names))
            case ["gone"]:
                # What waits for the program cannot be ended by anything else.
                return RemoteExit(None, "SIGKILL")
            case ["running"]:
                # The client was killed, or its connection was lost, and nothing reads the output.
                if await self._end(0.0) == "ended" and self._is_being_ended:
                    return RemoteExit(None, "SIGKILL")
        return LOST

    async def _ask(self, verb: str, words: str, timeout_s: float) -> str | None:
        """Send a request; return the reply, or None if the host cannot be reached."""
        with contextlib.suppress(ProviderError, ControlLostError):
            control = await self._connections.control()
            return await control.request(verb, words, timeout_s=timeout_s)
        return None


class KeptProgram(SshProgram):
    """A program that the other host's daemon keeps; `limit_s` is the time until it is lost."""

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

    async def _end(self, grace: float) -> str | None:
        """End the program now, or when the host can be reached again."""
        reply = await super()._end(grace)
        if reply is None:
            self._keeper.abandon(self._identifier)
        return reply

    async def exit(self, code: int | None, signal: str | None) -> RemoteExit:
        """Return how the program ended; `code` and `signal` are how the bridge ended."""
        reply: str | None = None
        if signal is None and code is not None and code <= _CERTAIN_MAX:
            self.ended()
            return RemoteExit(code, None)
        # The bridge has ended by itself if there is no signal: then the program has, too.
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
    """Return the name of a signal, by its name over there if the systems number it differently."""
    with contextlib.suppress(ValueError, IndexError):
        return name_of(number_of(names[0]))
    return name_of(number)
