"""The interface of a program that runs on another host than its terminal.

The keeper runs a client on the terminal's PTY, such as `ssh`. What the user or the agent does to
the program is done to the program itself, over there. The client ends when the program does; how
the program ended is asked over there too, since a client cannot say all of it.

Unhappy order: the host cannot be reached any more. Then `end` gives up, the client is killed as
any local program, and the exit is reported as lost.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from acpterm.terminal.status import EndedBy


class RemoteExit(NamedTuple):
    """How a remote program ended. Exactly one of `code` and `signal` is None."""

    code: int | None
    signal: str | None
    """The signal's name, such as `SIGTERM`."""
    ended_by: EndedBy | None = None
    """What ended the program, unless it ended by itself or was killed from here."""


class RemoteProgram(Protocol):
    """A program on another host. Its methods do not raise, and take a bounded time."""

    @property
    def host(self) -> str | None:
        """The name of the host; None if it is not known yet."""

    @property
    def is_queued(self) -> bool:
        """Whether the program has not started, because it waits for resources."""

    async def follow(self, changed: Callable[[], object]) -> None:
        """Call `changed` when `host` or `is_queued` has changed; return once the program has ended.

        It need not return if the client ends with the program.
        """

    async def end(self, grace: float) -> bool:
        """End the program and its descendants: SIGTERM, and SIGKILL after `grace` seconds.

        Returns whether none is left; False if the host cannot be reached.
        """

    async def signal(self, number: int) -> bool:
        """Send a signal to the foreground process group; return whether it was sent."""

    async def exit(self, code: int | None, signal: str | None) -> RemoteExit:
        """Return how the program ended; `code` and `signal` are how its client ended."""
