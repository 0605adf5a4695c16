"""Decides whether a connection to the user's socket is the user's or an agent's.

`host.Host` calls `Admission.judge` for each connection to the user's socket. A refused connection
is not closed: every request on it fails with an error that says the reason, so that the client can
report the reason. The processes of the user's uid are admitted, except:

- processes in a terminal that an agent created, even if it was promoted;
- processes that use an agent's connection, and their descendants. An approver itself, though, is
  admitted: this process asks the user an agent's questions, and the user has started it;
- processes from a terminal of another daemon, and processes whose origin cannot be determined.

This keeps agents from using the user's commands by mistake. It is not a security boundary: see
docs/security.md.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Final, NamedTuple, TypeAlias

import trio

from acpterm.host.entry import TerminalEntry
from acpterm.host.server.peer import PeerProcess
from acpterm.pty.tracking.origin import Origin
from acpterm.pty.tracking.tree import retry_on_oserror
from acpterm.pty.tracking.trees import Trees

Identity: TypeAlias = tuple[int, float]


class Admittance(NamedTuple):
    pid: int
    refusal: str | None
    """Why the connection is refused, and what to do; None if the connection is the user's."""
    terminals: frozenset[str] = frozenset()
    process: Identity | None = None


_OUTSIDE: Final = "run the command outside of acpterm's terminals, in a window of your own"


class Admission:
    """Decides which connections to the user's socket are admitted."""

    def __init__(
        self,
        trees: Trees,
        find: Callable[[str], TerminalEntry | None],
        wait_created: Callable[[str], Awaitable[None]],
        holders: Callable[[], Collection[Identity]],
        approvers: Callable[[], Collection[Identity]],
    ) -> None:
        self._trees: Final = trees
        self._find: Final = find
        self._wait_created: Final = wait_created
        self._holders: Final = holders
        self._approvers: Final = approvers

    async def judge(self, stream: trio.SocketStream) -> Admittance:
        """Decide whether a connection is the user's, by its process and the ancestors."""
        # Raises `OSError` if no file descriptor is left, not even a reserved one.
        with PeerProcess(stream) as peer:
            if not peer.pid:
                return Admittance(
                    0,
                    "the process that connected cannot be seen from here (it is in another pid "
                    "namespace), so it may be an agent's: connect from where the daemon runs",
                )

            async def read_origin() -> Origin | None:
                await trio.lowlevel.checkpoint()
                return self._trees.origin(peer.pid)

            origin = await retry_on_oserror(read_origin)
            found = peer.identity
            # If the process has ended, `origin` may be that of another process with the same pid.
            if peer.has_ended():
                return Admittance(
                    peer.pid,
                    "the process that connected has ended, so that it cannot be seen whether it "
                    "was an agent's: connect from a process that stays until it is answered",
                )
        if origin is None:
            return Admittance(
                peer.pid,
                "the ancestors of the process that connected cannot be read, so that it cannot be "
                "seen whether it is an agent's: if /proc is mounted with hidepid, or a unit has "
                f"ProtectProc, remove that; if they just keep changing, try again, or {_OUTSIDE}",
            )
        for name in origin.terminals:
            # A program may connect before the host has its terminal.
            await self._wait_created(name)
        process = None if found is None else (found.pid, found.started)
        return Admittance(peer.pid, self._refusal(origin), origin.terminals, process)

    def _refusal(self, origin: Origin) -> str | None:
        for name in sorted(origin.terminals):
            entry = self._find(name)
            if entry is not None and not entry.is_created_by_user:
                return (
                    f"you run in an agent's terminal ({name}): ask the user, or use the terminal "
                    "methods of your own connection"
                )
        if (holder := self._holder(origin)) is not None:
            return (
                f"you descend from process {holder}, which holds an agent's connection: ask the "
                "user, or use the terminal methods of your own connection"
            )
        if origin.is_foreign or any(self._find(name) is None for name in origin.terminals):
            return (
                "you come from a terminal that this daemon does not have (another daemon's, or one "
                f"that was removed), which may be an agent's: {_OUTSIDE}"
            )
        if origin.is_descendant and not origin.terminals:
            return (
                "you come from one of this daemon's terminals, and nothing says from which, so it "
                f"may be an agent's: {_OUTSIDE}, or keep ACPTERM_TERMINAL_ID in the environment"
            )
        return None

    def _holder(self, origin: Origin) -> int | None:
        """Return the pid of the nearest process that uses an agent's connection, or None."""
        # Of an approver that connects itself, only the ancestors count.
        ancestry = [(one.pid, one.started) for one in origin.ancestry]
        if ancestry and ancestry[0] in self._approvers():
            del ancestry[0]
        holders = self._holders()
        return next((process[0] for process in ancestry if process in holders), None)
