"""The rules that `client` and `blocking_client` share: repeated requests, decoding, messages.

When a connection is lost, the daemon's worker has died. Pending requests that are safe to repeat
(`REPEATABLE`) are then sent again on another connection. It is unknown whether the other pending
requests were executed, so they fail with a message that says this. A stream of notifications raises
`LostError`; its reader reconnects, and opens another stream at the position that it has reached.
"""

import math
import re
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec import Raw

from acpterm.acp.base import Wire
from acpterm.acp.user_api import TerminalInfo
from acpterm.client.sanitize import one_line
from acpterm.config import Settings, user_socket
from acpterm.jsonrpc import REQUEST_CANCELLED, RpcError
from acpterm.link.daemon import DaemonError, NotRunningError
from acpterm.link.errors import LostError

W = TypeVar("W", bound=Wire)

REPEATABLE: Final = {
    "approval/list": 1,
    "session/list": 1,
    "share/list": 1,
    "status": 1,
    "terminal/get": 1,
    "terminal/kill": 1,
    "terminal/list": 1,
    "terminal/output": 1,
    "terminal/promote": 1,
    "terminal/read": 1,
    "terminal/screen": 1,
    "terminal/wait": math.inf,
}
"""How many times a request may be repeated after a lost connection, by method. Requests of other
methods are never repeated. Most requests are repeated only once, since a request that has killed
one worker may kill the next one."""
# The words by which error messages of the daemon refer to a terminal.
_TERMINAL: Final = re.compile(r"terminal 'term_[0-9a-f]{32}'")


class StreamRequest(Protocol):
    """The params of a request that causes notifications; each notification contains `token`."""

    token: str


class _Notification(msgspec.Struct):
    token: str | None = None


_notifications: Final = msgspec.json.Decoder(_Notification)


def token_of(params: Raw) -> str | None:
    """Return the token of the stream that a notification belongs to; None if it belongs to none.

    `params` are the notification's params.
    """
    try:
        return _notifications.decode(params).token
    except msgspec.ValidationError:  # a newer daemon sends params of another format
        return None


def decode_answer(name: str, method: str, answer: Raw, into: type[W]) -> W:
    """Decode the result of a request; raise `DaemonError` if the daemon is of another version."""
    try:
        return msgspec.json.decode(answer, type=into)
    except msgspec.DecodeError as error:
        raise DaemonError(
            f"{name} is of another version ({method}: {error}): end it with acpterm shutdown; the "
            "next command starts one of this version"
        ) from error


def unknown_outcome(name: str, method: str) -> LostError:
    """Return the error for a request that may have been executed before the connection was lost.

    The message names `method`, and refers to the daemon as `name`.
    """
    return LostError(
        f"{name} went away before it answered: it is unknown whether "
        f"{method} was done; acpterm ls shows what there is"
    )


def not_running(settings: Settings) -> NotRunningError:
    """Return the error of a command that needs a running daemon and does not start one."""
    return NotRunningError(f"no daemon listens at {user_socket(settings)}: there are no terminals")


class TypedNames:
    """The names that the user typed for terminals, for error messages to use instead of ids."""

    def __init__(self) -> None:
        self._typed: dict[str, str] = {}

    def note(self, answer: object, typed: str) -> None:
        """Record the name `typed` for the terminal that the result `answer` describes.

        Do nothing if `answer` does not describe a terminal.
        """
        if isinstance(answer, TerminalInfo) and answer.terminal_id != typed:
            self._typed[answer.terminal_id] = typed

    def failure(self, daemon: str, error: RpcError, params: object) -> RpcError | DaemonError:
        """Return a copy of `error` whose message has the typed name of the terminal, not its id.

        The terminal is the one in `params`, the params of the failed request. If the error means
        that the daemon is ending, return a `DaemonError` instead. `daemon` is what the message of
        the `DaemonError` calls the daemon.
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
