"""Candidates for the completion of names and ids in the user's shell.

The user has just pressed Tab, so this must be quick and silent: no daemon is started, no error is
printed, and if the daemon does not respond within `TIMEOUT_S`, there are no candidates.
"""

import time
from typing import Final, TypeVar

from acpterm.acp.base import Wire
from acpterm.acp.shares import ShareInfo, SharesResponse
from acpterm.acp.user_api import ListRequest, ListResponse, NoParams, TerminalInfo
from acpterm.commands.blocking_client import open_blocking_client
from acpterm.config import Settings
from acpterm.jsonrpc import RpcError
from acpterm.link.blocking import DeadlineError
from acpterm.link.daemon import DaemonError
from acpterm.runtime.sanitize import one_line

W = TypeVar("W", bound=Wire)

TIMEOUT_S: Final = 0.3
# Minimum length of a shown id in characters, even if fewer characters would be unique.
_ID_MIN: Final = 8
# Maximum length of a terminal's description, in characters.
_DESCRIPTION_MAX: Final = 60
# The prefix of terminals' ids.
_KIND: Final = "term_"


def terminals(settings: Settings) -> list[TerminalInfo]:
    """Return the daemon's terminals, including released ones; an empty list on any failure."""
    found = _request(settings, "terminal/list", ListRequest(all=True), ListResponse)
    return [] if found is None else found.terminals


def shares(settings: Settings) -> list[ShareInfo]:
    """Return the daemon's shares; an empty list on any failure."""
    found = _request(settings, "share/list", NoParams(), SharesResponse)
    return [] if found is None else found.shares


def _request(settings: Settings, method: str, params: Wire, into: type[W]) -> W | None:
    deadline = time.monotonic() + TIMEOUT_S
    try:
        with open_blocking_client(settings, start=False, answer_timeout_s=TIMEOUT_S) as client:
            client.deadline = deadline
            return client.call(method, params, into)
    except (OSError, DaemonError, DeadlineError, RpcError):
        return None


def short_ids(ids: list[str]) -> dict[str, str]:
    """Map each id to its shortest unique prefix of at least `_ID_MIN` digits, without `term_`."""
    bare = sorted(identifier.removeprefix(_KIND) for identifier in ids)
    found = {}
    for at, one in enumerate(bare):
        beside = bare[max(at - 1, 0) : at] + bare[at + 1 : at + 2]
        length = 1 + max((_common(one, other) for other in beside), default=0)
        found[one] = one[: max(length, _ID_MIN)]
    return {identifier: found[identifier.removeprefix(_KIND)] for identifier in ids}


def _common(one: str, other: str) -> int:
    same = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        same += 1
    return same


def description(terminal: TerminalInfo) -> str:
    return one_line(f"{terminal.state}  {terminal.command}", _DESCRIPTION_MAX)
