"""What the user's requests to the daemon have in common, however they are sent.

When the connection is lost, the daemon's worker has died. Then requests that can be done again are
repeated on another connection (`REPEATABLE`). Others raise `LostError`: the callers of those that
go on (`ONGOING`) ask for them again, from the position that they have reached; of the rest it is
unknown whether they were done, and their commands fail and say so.
"""

import math
import re
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from acpterm.acp.base import Wire
from acpterm.acp.user_api import TerminalInfo
from acpterm.client.daemon import DaemonError
from acpterm.client.errors import LostError
from acpterm.client.sanitize import one_line
from acpterm.jsonrpc import RpcError

W = TypeVar("W", bound=Wire)

REPEATABLE: Final = {
    "session/list": 1,
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
"""How often a request is repeated: once, since what kills one worker may kill the next one."""
ONGOING: Final = ("events", "terminal/attach", "terminal/follow")
"""Requests that their callers repeat."""
# A terminal in a message, by its whole id.
_TERMINAL: Final = re.compile(r"terminal 'term_[0-9a-f]{32}'")


def decode_answer(name: str, method: str, answer: Raw, into: type[W]) -> W:
    """Return an answer of the daemon `name`; raises `DaemonError` if it is of another version."""
    try:
        return msgspec.json.decode(answer, type=into)
    except msgspec.DecodeError as error:
        raise DaemonError(
            f"{name} is of another version (_acpterm/{method}: {error}): end it "
            "with acpterm shutdown; the next command starts one of this version"
        ) from error


def unknown_outcome(name: str, method: str) -> LostError:
    """Return the error for a request that was lost and cannot be repeated."""
    return LostError(
        f"{name} went away before it answered: it is unknown whether "
        f"{method} was done; acpterm ls shows what there is"
    )


class TypedNames:
    """What the user typed for each terminal: messages call it that."""

    def __init__(self) -> None:
        self._typed: dict[str, str] = {}

    def note(self, answer: object, typed: str) -> None:
        """Note that `typed` means the terminal of an answer, if it is a `TerminalInfo`."""
        if isinstance(answer, TerminalInfo) and answer.terminal_id != typed:
            self._typed[answer.terminal_id] = typed

    def rename(self, error: RpcError, params: Wire) -> RpcError:
        """Return `error` with the name that the user typed in place of the terminal's id."""
        asked = getattr(params, "terminal_id", None)
        if not isinstance(asked, str):
            return error
        typed = f"terminal '{one_line(self._typed.get(asked, asked))}'"
        return RpcError(error.code, _TERMINAL.sub(lambda _: typed, error.message), error.data)
