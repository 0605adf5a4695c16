"""The state of one connection of a user's client, which may use every terminal of the host.

Attached windows, subscriptions and other ongoing requests end with the connection. The terminals
that the user created do not.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

import trio

from acpterm.host.entry import TerminalEntry
from acpterm.host.host_state import HostState
from acpterm.host.launch.validation import DirectoryCache
from acpterm.host.server.dispatch import Sender
from acpterm.host.sessions.observed import ObservedSession
from acpterm.host.terminal_info import gives_signal_code
from acpterm.host.windows import Window
from acpterm.jsonrpc import INVALID_PARAMS, REQUEST_CANCELLED, RpcError, quote
from acpterm.policy.questions import AnsweredBy
from acpterm.pty.tracking import marks
from acpterm.runtime.exec_context import ExecContext
from acpterm.terminal.terminal import Terminal

Sessions: TypeAlias = Callable[[], Iterable[ObservedSession]]


class UserConnection:
    """The state of one connection of a user's client. See `dispatch.ConnectionContext`.

    `context` is the client's execution context. `terminals` are the ids of the terminals that the
    client's process runs in: several if they are nested. `process` is the pid and the start time of
    the client's process; None if they are not known.
    """

    def __init__(
        self,
        context: ExecContext,
        host: HostState,
        sessions: Sessions,
        terminals: Collection[str] = (),
        *,
        process: tuple[int, float] | None = None,
        answers_as: AnsweredBy = "approvals",
    ) -> None:
        self.context = context
        self.process: Final = process
        self.answers_as: Final = answers_as
        """The origin that is recorded with the client's answers to questions about commands."""
        self._terminals: Final = frozenset(terminals)
        self.host: Final = host
        self.sessions: Final = sessions
        """A function that returns the sessions of all agents' connections."""
        self.settings: Final = host.settings
        self.directories: Final = DirectoryCache()
        self.sender: Final = Sender()
        self._closed = False
        self._held: set[Terminal] = set()
        self._ongoing: set[trio.CancelScope] = set()
        self._tokens: dict[str, tuple[TerminalEntry, Window] | None] = {}

    @property
    def signal_code(self) -> bool:
        """Whether the exit code of a program ended by signal n is sent as 128 + n, not as null.

        See `terminal_info.gives_signal_code`.
        """
        return gives_signal_code(self.settings)

    @property
    def terminals(self) -> frozenset[str]:
        """The ids of the terminals, of this daemon or another one, that the client runs in.

        There are several if the terminals are nested. The terminal that the client's environment
        names is included, since the process tree alone may not show that terminal.
        """
        named = self.context.env.get(marks.TERMINAL)
        return self._terminals | {named} if named else self._terminals

    def flush_state(self) -> None:
        """Write all changed records to the keeper's store. Called before a response is sent."""
        self.host.state_writer.flush()

    def close(self) -> None:
        """Cancel all ongoing requests, and undo every `hold_output`. Idempotent.

        A request that begins later is cancelled at once.
        """
        self._closed = True
        for scope in self._ongoing:
            scope.cancel()
        for terminal in list(self._held):
            self.release_output(terminal)

    def hold_output(self, terminal: Terminal, position: int) -> None:
        """Prevent the terminal's ring from dropping the output that begins at `position`.

        The program blocks once the ring is full. A later call for the same terminal replaces the
        position. After `close`, do nothing.
        """
        if self._closed:
            return
        self._held.add(terminal)
        terminal.ring.hold(self, position)

    def release_output(self, terminal: Terminal) -> None:
        """Let the terminal's ring drop output again: the reverse of `hold_output`. Idempotent."""
        self._held.discard(terminal)
        terminal.ring.let_go(self)

    def entry(self, name: str, *, own: bool = False) -> TerminalEntry:
        """Return the entry that `name` means: an id, a prefix of an id, a name, or @last.

        @last means the newest of all terminals. With `own`, @last means the user's newest terminal,
        and a name means an agent's terminal only if no terminal of the user has the name. Raises
        `RpcError`: -32002 if no terminal matches, -32602 if the prefix is ambiguous.
        """
        return self.host.registry.find(name, own=own)

    @contextmanager
    def ongoing_request(
        self, token: str, attached: tuple[TerminalEntry, Window] | None = None
    ) -> Iterator[None]:
        """Register an ongoing request under its token during the block.

        The client chooses the token; the request's notifications contain the token. For an attach
        request, `attached` has its terminal and its window. During the block, the method `window`
        returns `attached`. For other requests, `attached` is None.

        When the connection closes, the block is cancelled, and `RpcError` (-32800) is raised. Also
        raises `RpcError` (-32602) if another ongoing request of the connection has the same token.
        """
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
        """Cancel the block when the connection closes; then raise `RpcError` (-32800)."""
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
        """Return the terminal and the window of the attach request with this token.

        Raises `RpcError` (-32602) if there is none.
        """
        attached = self._tokens.get(token)
        if attached is None:
            raise RpcError(INVALID_PARAMS, f"no window is attached by the token {quote(token)}")
        return attached


def _closing() -> RpcError:
    return RpcError(REQUEST_CANCELLED, "cancelled: the connection is closing")
