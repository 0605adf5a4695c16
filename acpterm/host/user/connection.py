"""The state of one connection of a user's client, which may use every terminal of the host.

Attached windows, subscriptions and other ongoing requests end with the connection. The terminals
that the user created do not.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import trio

from acpterm.host.access import Access, Need
from acpterm.host.daemon_state import DaemonState
from acpterm.host.entry import TerminalEntry
from acpterm.host.guard import Guard
from acpterm.host.sessions.session import Session
from acpterm.host.terminals import Terminals
from acpterm.host.windows import Window
from acpterm.jsonrpc import INVALID_PARAMS, REQUEST_CANCELLED, RpcError, quote
from acpterm.policy.questions import AnsweredBy
from acpterm.pty.tracking import marks
from acpterm.runtime.exec_context import ExecContext
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal

Sessions: TypeAlias = Callable[[], Iterable[Session]]


class UserConnection(Access):
    """The state of one connection of a user's client."""

    by = EndedBy.USER

    def __init__(
        self,
        context: ExecContext,
        *,
        terminals: Terminals,
        guard: Guard,
        daemon: DaemonState,
        sessions: Sessions,
        inside: Collection[str] = (),
        process: tuple[int, float] | None = None,
        answers_as: AnsweredBy = "approvals",
    ) -> None:
        super().__init__(terminals, guard, context)
        self.daemon: Final = daemon
        self.process: Final = process
        self.answers_as: Final = answers_as
        """The origin that is recorded with the client's answers to questions about commands."""
        self._inside: Final = frozenset(inside)
        self.sessions: Final = sessions
        self._closed = False
        self._held: set[Terminal] = set()
        self._ongoing: set[trio.CancelScope] = set()
        self._tokens: dict[str, tuple[TerminalEntry, Window] | None] = {}

    @property
    def inside(self) -> frozenset[str]:
        """The terminals, nested ones of any daemon, that the client runs in."""
        # Also that of its environment: the process tree alone may not show it.
        named = self.context.env.get(marks.TERMINAL)
        return self._inside | {named} if named else self._inside

    def close(self) -> None:
        """Cancel all requests, also later ones, and let go of all held output. Idempotent."""
        self._closed = True
        for scope in self._ongoing:
            scope.cancel()
        for terminal in list(self._held):
            self.release_output(terminal)

    def hold_output(self, terminal: Terminal, position: int) -> None:
        """Keep the output from `position` on in the ring: the program blocks once it is full."""
        if self._closed:
            return
        self._held.add(terminal)
        terminal.ring.hold(self, position)

    def release_output(self, terminal: Terminal) -> None:
        self._held.discard(terminal)
        terminal.ring.let_go(self)

    def resolve(self, params: Any, need: Need, done: str = "") -> TerminalEntry:
        """Return the terminal that a request names (see `Access`); to type, the user's first."""
        del done
        return self.registry.find(params.terminal_id, own=need is Need.TYPE)

    def release_terminal(self, params: Any) -> TerminalEntry:
        entry = self.resolve(params, Need.CONTROL)
        self.registry.remove(entry)
        return entry

    @contextmanager
    def ongoing_request(
        self, token: str, attached: tuple[TerminalEntry, Window] | None = None
    ) -> Iterator[None]:
        """Register a request under its token; cancel it when the connection closes."""
        # Raises `RpcError`: -32602 if the token is in use, -32800 when the connection closes.
        if token in self._tokens:
            raise RpcError(INVALID_PARAMS, f"token {quote(token)} is in use: choose another")
        self._tokens[token] = attached
        try:
            with self.cancel_on_close():
                yield
        finally:
            del self._tokens[token]

    @contextmanager
    def cancel_on_close(self) -> Iterator[None]:
        if self._closed:
            # The connection closed after the request was received, but before its task ran.
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
        attached = self._tokens.get(token)
        if attached is None:
            raise RpcError(INVALID_PARAMS, f"no window is attached by the token {quote(token)}")
        return attached


def _closing() -> RpcError:
    return RpcError(REQUEST_CANCELLED, "cancelled: the connection is closing")
