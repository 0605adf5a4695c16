"""Requests on the user's socket that stay open: each is followed by notifications.

The client chooses a `token` for each request. Its notifications carry that token. The response
comes at the end, and ``$/cancel_request`` ends the request early. Conventions are as in
`user_api`.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from acpterm.acp.agent_api import Cells, Natural
from acpterm.acp.base import Wire
from acpterm.acp.user_api import ExitInfo, TerminalInfo, TerminalName

Token = Annotated[str, Meta(description="any string: the request's notifications carry it, too")]
UpdateFormat: TypeAlias = Literal["meta", "v2"]


class ExportRequest(Wire):
    """``_acpterm/terminal/export``: send the retained output of a terminal as asciicast v2.

    The asciicast comes in ``exported`` notifications, and the response at its end.
    """

    terminal_id: TerminalName
    token: Token


class ExportedNotification(Wire):
    """``_acpterm/terminal/exported``: the next lines of an asciicast, each with its newline."""

    token: Token
    lines: str


class AttachRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/attach``: show a terminal in a window of `cols` and `rows`."""

    terminal_id: TerminalName
    token: Token
    cols: Cells
    rows: Cells
    read_only: bool = False


class AttachedNotification(Wire, omit_defaults=True):
    """``_acpterm/terminal/attached``: the next bytes to write to the window, in base64.

    `kind` is `screen` if they repaint the whole window, and `output` for subsequent output. A
    screen with `alternate` is painted on the window's alternate screen. The main screen then stays
    as it is, and another `screen` repaints it before any output goes there.
    """

    token: Token
    kind: Literal["screen", "output"]
    data: str
    alternate: bool = False


class AttachResponse(Wire):
    """The response to ``_acpterm/terminal/attach``, when the attachment ends.

    `reason` is `exited` if the program has exited, and `released` if the terminal was released
    while the program was still running.
    """

    reason: Literal["exited", "released"]
    exit_status: ExitInfo | None = None


class WindowRequest(Wire):
    """``_acpterm/terminal/window``: set the size of an attached window, and repaint it."""

    token: Token
    cols: Cells
    rows: Cells


class FollowRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/follow``: send the output of a terminal, past and future, as bytes.

    Starts at the position `since`; or with `since_time` at the first byte that was output at that
    time or later; otherwise at the oldest retained byte. With `times` each notification has the
    time `at` which its bytes were output, unless it is unknown: that of output from before the
    daemon's worker was replaced. With `since_time` such output is omitted. With `stay` (the
    default) the response comes once the program has exited and all of its output was sent;
    otherwise once the current output was sent. A release meanwhile changes nothing.

    With `hold` no output is lost: the program blocks while its output is unread. That works only
    for the user's own terminals.
    """

    terminal_id: TerminalName
    token: Token
    since: Natural | None = None
    since_time: Natural | None = None
    times: bool = False
    stay: bool = True
    hold: bool = False


class FollowedNotification(Wire, omit_defaults=True):
    """``_acpterm/terminal/followed``: the next bytes of output, in base64.

    `position` is the position after them. `lost` counts the bytes before them that were dropped.
    """

    token: Token
    data: str
    position: int
    lost: int
    at: int | None = None


class FollowResponse(Wire):
    """The response to ``_acpterm/terminal/follow``."""

    position: int
    exit_status: ExitInfo | None


class EventsRequest(Wire):
    """``_acpterm/events``: send all events from now on."""

    token: Token


class EventNotification(Wire, omit_defaults=True):
    """``_acpterm/event``: an event. `lost` counts the events before it that were not sent.

    `event` is one of ``connected``, ``disconnected``, ``created``, ``exited``, ``killed``,
    ``released``, ``promoted``, ``renamed``, ``waiting``, ``resumed``, ``attached``, ``detached``,
    ``resized`` and ``tool_call``.
    """

    token: Token
    event: str
    at: int
    terminal: TerminalInfo | None = None
    connection: str | None = None
    agent: str | None = None
    session_id: str | None = None
    by: str | None = None
    update: Any | UnsetType = UNSET
    lost: int = 0


class SubscribeRequest(Wire, omit_defaults=True):
    """``_acpterm/session/subscribe``: send a session's tool calls and their terminals' output.

    They are sent as ``session/update`` notifications in the given `format`. `connection` is
    required if two connections have a session with that id. The response comes when the session's
    connection has closed.
    """

    session_id: Annotated[str, Meta(description="the id of a session")]
    token: Token
    connection: str | None = None
    format: UpdateFormat = "meta"
