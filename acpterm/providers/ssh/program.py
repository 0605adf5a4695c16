"""The program of one terminal on a host that ssh reaches. Implements `terminal.remote`."""

import contextlib
from collections.abc import Callable
from typing import Final

import trio

from acpterm.providers.provider import ProviderError
from acpterm.providers.ssh.connections import Connections
from acpterm.providers.ssh.control import ControlLostError
from acpterm.pty.signals import name_of, number_of
from acpterm.terminal.remote import RemoteExit
from acpterm.terminal.status import EndedBy

LOST: Final = RemoteExit(255, None, EndedBy.LOST)
# Codes up to this one are the program's own. A higher one may be a shell's for a signal, and 255 is
# also ssh's when the connection is lost.
_CERTAIN_MAX: Final = 127
_REPLY_TIMEOUT_S: Final = 5.0
_KILL_TIMEOUT_S: Final = 5.0


class SshProgram:
    """A program; `identifier` is that of its job, and `master` the path of its connection."""

    def __init__(self, connections: Connections, identifier: str, master: str) -> None:
        self._connections: Final = connections
        self._identifier: Final = identifier
        self._master: Final = master
        self._is_counted = True
        connections.count(master, 1)

    @property
    def host(self) -> str:
        """The name of the host."""
        return self._connections.host

    def ended(self) -> None:
        """Record that the program's session has ended. Idempotent."""
        if self._is_counted:
            self._is_counted = False
            self._connections.count(self._master, -1)

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
        words = f"{self._identifier} {round(10 * grace)}"
        reply = await self._ask("end", words, grace + _KILL_TIMEOUT_S)
        return reply == "ended"

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
        if not self._connections.is_alive(self._master):
            return LOST
        reply = await self._ask("exit", self._identifier, _REPLY_TIMEOUT_S)
        match (reply or "").split():
            case ["code", number]:
                return RemoteExit(int(number), None)
            case ["signal", number, *names]:
                return RemoteExit(None, _signal_name(int(number), names))
            case ["gone"]:
                # What waits for the program cannot be ended by anything else.
                return RemoteExit(None, "SIGKILL")
            case ["running"]:
                # ssh was killed here, or its connection was lost, and nothing reads the output.
                await self.end(0.0)
        return LOST

    async def _ask(self, verb: str, words: str, timeout_s: float) -> str | None:
        """Send a request; return the reply, or None if the host cannot be reached."""
        with contextlib.suppress(ProviderError, ControlLostError):
            control = await self._connections.control()
            return await control.request(verb, words, timeout_s=timeout_s)
        return None


def _signal_name(number: int, names: list[str]) -> str:
    """Return the name of a signal, by its name over there if the systems number it differently."""
    with contextlib.suppress(ValueError, IndexError):
        return name_of(number_of(names[0]))
    return name_of(number)
