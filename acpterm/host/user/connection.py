"""The person, at one connection of a front end: sees every terminal, and has the last word on each.

What a front end has open (attached windows, what it listens to) ends with its connection. Terminals
do not: the person's are theirs wherever they look from.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

import trio

from acpterm.host.agent.session import Session
from acpterm.host.exit_status import gives_signal_code
from acpterm.host.host_state import Shared
from acpterm.host.launch.exec_context import Asker
from acpterm.host.launch.validation import Folders
from acpterm.host.registry import Entry
from acpterm.host.server.sender import Sender
from acpterm.host.windows import Window
from acpterm.jsonrpc import INVALID_PARAMS, REQUEST_CANCELLED, RpcError, quoted
from acpterm.pty.tracking import marks
from acpterm.terminal.terminal import Terminal

Sessions: TypeAlias = Callable[[], Iterable[Session]]


class Person:
    """One connection's person. See `connection.Served`."""

    def __init__(
        self,
        asker: Asker,
        shared: Shared,
        sessions: Sessions,
        terminals: Collection[str] = (),
    ) -> None:
        self.asker = asker
        self._terminals: Final = frozenset(terminals)
        self.shared: Final = shared
        self.sessions: Final = sessions
        """Gives the sessions of all agents that are connected."""
        self.settings: Final = shared.settings
        self.folders: Final = Folders()
        self.sender: Final = Sender()
        self._gone = False
        self._held: set[Terminal] = set()
        self._going: set[trio.CancelScope] = set()
        self._tokens: dict[str, tuple[Entry, Window] | None] = {}

    @property
    def signal_code(self) -> bool:
        """Whether the user is sent an exit code on death by a signal."""
        return gives_signal_code(self.settings)

    @property
    def terminals(self) -> frozenset[str]:
        """The ids of terminals that the front end runs in, of this daemon or another.

        The environment adds those that the system does not know of here.
        """
        named = self.asker.env.get(marks.TERMINAL)
        return self._terminals | {named} if named else self._terminals

    def flush(self) -> None:
        """Store what has changed: an answer that tells of it is about to be sent."""
        self.shared.state.flush()

    def leave(self) -> None:
        """End what goes on, and what only begins after this: nobody is told of it any more."""
        self._gone = True
        for scope in self._going:
            scope.cancel()
        for terminal in list(self._held):
            self.let_go(terminal)

    def hold(self, terminal: Terminal, position: int) -> None:
        """Have a terminal's program wait while what came from `position` on was not read here.

        Does nothing once the person has left.
        """
        if self._gone:
            return
        self._held.add(terminal)
        terminal.ring.hold(self, position)

    def let_go(self, terminal: Terminal) -> None:
        """Have it wait no longer. Can be repeated."""
        self._held.discard(terminal)
        terminal.ring.let_go(self)

    def entry(self, name: str, *, own: bool = False) -> Entry:
        """Return the terminal of that name; see `Roster.find`. Raises `RpcError`."""
        return self.shared.roster.find(name, own=own)

    @contextmanager
    def going(self, token: str, shown: tuple[Entry, Window] | None = None) -> Iterator[None]:
        """Have a request go on in the block, under a token that no other has then.

        It is cancelled when the person leaves. Raises `RpcError` (-32602) if the token is in use.
        """
        if token in self._tokens:
            raise RpcError(INVALID_PARAMS, f"token {quoted(token)} is in use: choose another")
        self._tokens[token] = shown
        try:
            with self.present():
                yield
        finally:
            del self._tokens[token]

    @contextmanager
    def present(self) -> Iterator[None]:
        """Have the block cancelled when the person leaves: `RpcError` then."""
        if self._gone:
            # Asked in time, by a request whose task had no turn before.
            raise _closing()
        with trio.CancelScope() as scope:
            self._going.add(scope)
            try:
                yield
            finally:
                self._going.discard(scope)
        if scope.cancelled_caught:
            raise _closing()

    def window(self, token: str) -> tuple[Entry, Window]:
        """Give the attached window of a token, and its terminal. Raises `RpcError` (-32602)."""
        shown = self._tokens.get(token)
        if shown is None:
            raise RpcError(INVALID_PARAMS, f"no window is attached by the token {quoted(token)}")
        return shown


def _closing() -> RpcError:
    return RpcError(REQUEST_CANCELLED, "cancelled: the connection is closing")
