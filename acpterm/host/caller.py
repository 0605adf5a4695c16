"""Who is at the other end of a connection, and what is theirs: sessions and terminals.

A caller sees nothing of other callers, and in each of its sessions nothing of the others: ids are
looked up in the caller's session of that name, so an id from elsewhere is one that never was.

States: *present*, then, by `leave`, *gone*: all its terminals are released, once and for all, and
one whose creation was under way is released when it comes.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from acpterm.config import Settings
from acpterm.host.asker import Asker
from acpterm.host.checks import Folders
from acpterm.host.keepsakes import Keepsakes
from acpterm.host.session import Session
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from acpterm.terminal import EndedBy, Pool, Terminal
from acpterm.terminal.views import ScreenTooLargeError, ScreenView, check_screen

SESSIONS: Final = 10_000

Room: TypeAlias = Callable[[], Awaitable[None]]


class Caller:
    """One connection's agent."""

    def __init__(self, asker: Asker, settings: Settings, pool: Pool, keepsakes: Keepsakes) -> None:
        self.asker = asker
        self.settings: Final = settings
        self.pool: Final = pool
        self.sessions: Final[dict[str, Session]] = {}
        self.folders: Final = Folders()
        self.screens: Final[dict[str, ScreenView]] = {}
        self.room: Room = trio.lowlevel.checkpoint
        """To be waited for before a large answer is made: the agent has to read, too."""
        self._keepsakes = keepsakes
        self._gone = False

    def session(self, identifier: str) -> Session:
        """Give the session of that name; a new one, at its first use."""
        return self.sessions.get(identifier) or Session(identifier, self._keepsakes)

    def own(self, session: Session) -> None:
        """Remember a session that has something to remember.

        There is room for `SESSIONS`: then the oldest that has no terminal goes, and is from then on
        one that never was. Raises `RpcError` (-32603) when all of them have one.
        """
        if session.id not in self.sessions and len(self.sessions) >= SESSIONS:
            for other in self.sessions.values():
                if not other.terminals:
                    break
            else:
                raise RpcError(
                    INTERNAL_ERROR,
                    f"{SESSIONS} sessions of this connection have terminals: release some of them",
                )
            del self.sessions[other.id]
        self.sessions.setdefault(session.id, session)

    def add(self, session: Session, terminal: Terminal) -> None:
        """Hold a terminal that was just made; if the caller is gone, release it."""
        # It was remembered when it was asked for, and may have been forgotten while it was made.
        session = self.sessions.setdefault(session.id, session)
        session.add(terminal)
        if self._gone:
            self.release(session, terminal.id, EndedBy.DISCONNECT)

    def release(self, session: Session, identifier: str, by: EndedBy) -> Terminal | None:
        """Release a terminal: give it, or None if that has been done. Raises `RpcError`."""
        terminal = session.release(identifier)
        if terminal is not None:
            self.pool.release(terminal, by)
            self.screens.pop(identifier, None)
        return terminal

    async def screen(self, terminal: Terminal) -> tuple[str, int]:
        """Give what the terminal's screen shows, and up to which position.

        Raises `RpcError` (-32602) when the window is too large for it.
        """
        try:
            view = self.screens.get(terminal.id)
            if view is None:
                view = ScreenView(terminal)
                # A read that waited for a release is answered by one that nobody keeps.
                if not terminal.released:
                    self.screens[terminal.id] = view
            return await view.text(), view.position
        except ScreenTooLargeError as error:
            raise _no_screen(error) from error

    @staticmethod
    def check_screen(cols: int, rows: int) -> None:
        """Raise `RpcError` (-32602) for a window that is too large to be shown as a screen."""
        try:
            check_screen(cols, rows)
        except ScreenTooLargeError as error:
            raise _no_screen(error) from error

    def leave(self) -> None:
        """Release all that is left. Can be repeated."""
        self._gone = True
        for session in self.sessions.values():
            for identifier in list(session.terminals):
                self.release(session, identifier, EndedBy.DISCONNECT)


def _no_screen(error: ScreenTooLargeError) -> RpcError:
    return RpcError(INVALID_PARAMS, f"format 'screen': {error}")
