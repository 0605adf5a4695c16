"""The messages about shares. A *share* is a link to one terminal; a *visitor* has such a link.

The user's methods are ``_acpterm/share/…``. On ``/user`` of the HTTP server, a visitor can call
only ``initialize`` and ``_acpterm/terminal/get``, ``read``, ``attach``, ``window`` and, if the
share allows typing, ``write``. To a visitor, ``get`` returns a `SharedTerminalInfo`.

A field `…_at` is in milliseconds since 1970, and a field `…_ms` is a duration in milliseconds.
"""

from typing import Annotated, Final

from msgspec import Meta

from acpterm.acp.base import Wire
from acpterm.acp.user_api import ExitInfo, Owner, State, TerminalName

SHARE_MS_MAX: Final = 30 * 86400 * 1000
SHARE_MS: Final = 3600 * 1000
"""The default duration of a share, in milliseconds."""

ShareMs = Annotated[int, Meta(ge=1, le=SHARE_MS_MAX)]
ShareId = Annotated[str, Meta(description="the id of a share, or the beginning of it")]


class ShareCreateRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/share/create``: make a link to one terminal.

    With `write`, visitors can type into the terminal as long as the user owns the terminal. The
    link is valid for `for_ms` milliseconds, an hour by default.
    """

    terminal_id: TerminalName
    write: bool = False
    for_ms: ShareMs = SHARE_MS


class ShareInfo(Wire):
    """A share: a link to one terminal.

    `name` is the name of the terminal; null if it has none. `write` is true if visitors may type.
    `ends_at` is when the link becomes invalid. `connections` is the number of open pages that use
    the link.
    """

    share_id: str
    terminal_id: str
    name: str | None
    write: bool
    created_at: int
    ends_at: int
    connections: int


class ShareCreateResponse(ShareInfo):
    """The response to ``_acpterm/share/create``: the new share, and its link."""

    url: str


class SharesResponse(Wire):
    """The response to ``_acpterm/share/list``: the shares that are valid, oldest first."""

    shares: list[ShareInfo]


class ShareRevokeRequest(Wire):
    """The params of ``_acpterm/share/revoke``: end a share, and close the pages that use it."""

    share_id: ShareId


class SharedTerminalInfo(Wire):
    """The state of a terminal, as a visitor gets it.

    It has neither paths nor pids, nor anything about the agent's connection. The fields are as in
    `TerminalInfo`; `write` says whether visitors can type into the terminal now.
    """

    terminal_id: str
    name: str | None
    state: State
    owner: Owner
    command: str
    cols: int
    rows: int
    created_at: int
    last_output_at: int | None
    exited_at: int | None
    position: int
    attached: int
    waiting_for_input: bool | None
    exit_status: ExitInfo | None
    ending: bool
    hides_input: bool
    write: bool
