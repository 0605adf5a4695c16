"""What both clients of the user's socket share: error messages.

When a connection is lost, the daemon's worker has died. Requests that are safe to repeat
(`link.unanswered.user_repeats`) are then sent again on another connection; the others fail with
`unknown_outcome`. A stream of notifications raises `LostError`; its reader reconnects, and opens
another stream at the position that it has reached.
"""

import re
from typing import Final

from acpterm.acp.user_api import TerminalInfo
from acpterm.config import Settings, user_socket
from acpterm.jsonrpc import REQUEST_CANCELLED, RpcError
from acpterm.link.daemon import DaemonError, NotRunningError
from acpterm.runtime.sanitize import one_line

# The words by which error messages of the daemon refer to a terminal.
_TERMINAL: Final = re.compile(r"terminal 'term_[0-9a-f]{32}'")


def not_running(settings: Settings) -> NotRunningError:
    """Return the error of a command that needs a running daemon and does not start one."""
    return NotRunningError(f"no daemon listens at {user_socket(settings)}: there are no terminals")


class TypedNames:
    """The names that the user typed for terminals, for error messages to use instead of ids."""

    def __init__(self) -> None:
        self._typed: dict[str, str] = {}

    def note(self, answer: object, typed: str) -> None:
        """Record the name `typed` for the terminal that a result describes, if it does."""
        if isinstance(answer, TerminalInfo) and answer.terminal_id != typed:
            self._typed[answer.terminal_id] = typed

    def failure(self, daemon: str, error: RpcError, params: object) -> RpcError | DaemonError:
        """Return `error` with the typed name of the terminal in `params` instead of its id.

        If the error means that the daemon is ending, return a `DaemonError`.
        """
        if error.code == REQUEST_CANCELLED:
            # The client never cancels a request that it waits for, so the daemon has cancelled it,
            # which it does when it ends.
            return DaemonError(f"{daemon} is gone")
        terminal = getattr(params, "terminal_id", None)
        if not isinstance(terminal, str):
            return error
        typed = f"terminal '{one_line(self._typed.get(terminal, terminal))}'"
        return RpcError(error.code, _TERMINAL.sub(lambda _: typed, error.message), error.data)
