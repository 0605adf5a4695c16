"""The interface of a program that runs on another host than its terminal.

The keeper runs a client, such as `ssh`, on the terminal's PTY. A request to signal or end the
program acts on the program on the other host, and not on the client. The client ends when the
program ends. How the program ended is queried from the other host, because the client's exit status
alone does not show it.

If the host cannot be reached any more, `end` gives up, the client is killed like a local program,
and the exit is reported as lost.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from acpterm.terminal.status import EndedBy


class RemoteExit(NamedTuple):
    """How a remote program ended. Exactly one of `code` and `signal` is None."""

    code: int | None
    signal: str | None  # such as `SIGTERM`
    ended_by: EndedBy | None = None  # such as the cluster; None: by itself, or by this daemon


class RemoteProgram(Protocol):
    """A program on another host, and its *client*: the local program on the PTY, such as `ssh`.

    No method raises. All but `follow` return in a bounded time.
    """

    @property
    def host(self) -> str | None:
        """The name of the host; None if it is not known yet."""

    @property
    def is_queued(self) -> bool:
        """Whether the program has not started yet because it waits for a cluster's resources."""

    @property
    def answers_queries(self) -> bool:
        """Whether a terminal on the other host answers the program's queries.

        Then the emulator on this host must not.
        """

    async def follow(self, changed: Callable[[], object]) -> None:
        """Call `changed` after each change of `host` or `is_queued`; return once the program ends.

        The caller then kills a client that keeps running. If the client always ends by itself, this
        need not return before it is cancelled.
        """

    async def end(self, grace: float) -> bool:
        """End the program and its descendants: SIGTERM, and SIGKILL after `grace` seconds.

        Returns whether all of them have ended; False also if the host cannot be reached.
        """

    async def signal(self, number: int) -> bool:
        """Signal the foreground group on the other host; return whether it was sent."""

    async def exit(self, code: int | None, signal: str | None) -> RemoteExit:
        """Return how the program ended; asks the other host if needed.

        `code` and `signal` are the client's exit status. Without the program's own, `ended_by` is
        `LOST`.
        """
