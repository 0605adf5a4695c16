"""The person, at one connection of a front end: sees every terminal, and has the last word on each.

What a front end has open (attached windows, what it listens to) ends with its connection. Terminals
do not: the person's are theirs wherever they look from.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

import trio

from acpterm.host.exit_status import gives_signal_code
from acpterm.host.host_state import HostState
from acpterm.host.launch.exec_context import ExecContext
from acpterm.host.launch.validation import DirectoryCache
from acpterm.host.registry import TerminalEntry
from acpterm.host.server.sender import Sender
from acpterm.host.sessions.observed import ObservedSession
from acpterm.host.windows import Window
from acpterm.jsonrpc import INVALID_PARAMS, REQUEST_CANCELLED, RpcError, quote
from acpterm.pty.tracking import marks
from acpterm.terminal.terminal import Terminal

Sessions: TypeAlias = Callable[[], Iterable[ObservedSession]]


class UserConnection:
    """One connection's person. See `connection.Served`."""

    def __init__(
        self,
        context: ExecContext,
        host: HostState,
        sessions: Sessions,
        terminals: Collection[str] = (),
    ) -> None:
        self.context = context
        self._terminals: Final = frozenset(terminals)
        self.host: Final = host
        self.sessions: Final = sessions
        """Gives the sessions of all agents that are connected."""
        self.settings: Final = host.settings
        self.directories: Final = DirectoryCache()
        self.sender: Final = Sender()
        self._closed = False
        self._paused: set[Terminal] = set()
        self._ongoing: set[trio.CancelScope] = set()
        self._tokens: dict[str, tuple[TerminalEntry, Window] | None] = {}

    @property
    def signal_code(self) -> bool:
        """Whether the user is sent an exit code on death by a signal."""
        return gives_signal_code(self.settings)

    @property
    def terminals(self) -> frozenset[str]:
        """The ids of terminals that the front end runs in, of this daemon or another.

        The environment adds those that the system does not know of here.
        """
        named = self.context.env.get(marks.TERMINAL)
        return self._terminals | {named} if named else self._terminals

    def drain(self) -> None:
        """Store what has changed: an answer that tells of it is about to be sent."""
        self.host.state.flush()

    def close(self) -> None:
        """End what goes on, and what only begins after this: nobody is told of it any more."""
        self._closed = True
        for scope in self._ongoing:
            scope.cancel()
        for terminal in list(self._paused):
            self.resume_reader(terminal)

    def pause_reader(self, terminal: Terminal, position: int) -> None:
        """Have a terminal's program wait while what came from `position` on was not read here.

        Does nothing once the person has left.
        """
        if self._closed:
            return
        self._paused.add(terminal)
        terminal.ring.hold(self, position)

    def resume_reader(self, terminal: Terminal) -> None:
        """Have it wait no longer. Can be repeated."""
        self._paused.discard(terminal)
        terminal.ring.let_go(self)

    def entry(self, name: str, *, own: bool = False) -> TerminalEntry:
        """Return the terminal of that name; see `Roster.find`. Raises `RpcError`."""
        return self.host.registry.find(name, own=own)

    @contextmanager
    def ongoing_request(
        self, token: str, shown: tuple[TerminalEntry, Window] | None = None
    ) -> Iterator[None]:
        """Have a request go on in the block, under a token that no other has then.

        It is cancelled when the person leaves. Raises `RpcError` (-32602) if the token is in use.
        """
        if token in self._tokens:
            raise RpcError(INVALID_PARAMS, f"token {quote(token)} is in use: choose another")
        self._tokens[token] = shown
        try:
            with self.cancel_on_close():
                yield
        finally:
            del self._tokens[token]

    @contextmanager
    def cancel_on_close(self) -> Iterator[None]:
        """Have the block cancelled when the person leaves: `RpcError` then."""
        if self._closed:
            # Asked in time, by a request whose task had no turn before.
            raise _closing()
        with trio.CancelScope() as scope:
            self._ongoing.add(scope)
            try:
                yield
            finally:
                self._ongoing.discard(scope)
        if scope.cancelled_caught:
            raise _closing()

    def window(self, token: str) -> tuple[TerminalEntry, Window]:
        """Give the attached window of a token, and its terminal. Raises `RpcError` (-32602)."""
        shown = self._tokens.get(token)
        if shown is None:
            raise RpcError(INVALID_PARAMS, f"no window is attached by the token {quote(token)}")
        return shown


def _closing() -> RpcError:
    return RpcError(REQUEST_CANCELLED, "cancelled: the connection is closing")
