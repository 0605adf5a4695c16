"""Requests on the user's socket that stay open: the host sends notifications, then the response.

The client chooses a `token` for each request, and each notification of the request contains the
token. ``$/cancel_request`` ends the request early. Units and names of terminals are as in
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
    """The params of ``_acpterm/terminal/export``: send the retained output as asciicast v2.

    The asciicast is sent in ``exported`` notifications; the response follows the last one.
    """

    terminal_id: TerminalName
    token: Token


class ExportedNotification(Wire):
    """``_acpterm/terminal/exported``: the next lines of an asciicast, each with its newline."""

    token: Token
    lines: str


class AttachRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/terminal/attach``: show a terminal in a window.

    The window has `cols` columns and `rows` rows. With `read_only` the window does not affect the
    terminal's size. With `scrollback` the window begins with the retained output of the main
    screen, so that its scrollback has it. With `since`, the last `position` that the window was
    sent by an earlier worker, it continues from there; with both, its main screen does, while it
    shows its alternate screen. With `complete` it is sent all output: the program waits for the
    window instead of some output being skipped.
    """

    terminal_id: TerminalName
    token: Token
    cols: Cells
    rows: Cells
    read_only: bool = False
    scrollback: bool = False
    since: Annotated[int, Meta(ge=0)] | None = None
    complete: bool = False


class AttachedNotification(Wire, omit_defaults=True):
    """``_acpterm/terminal/attached``: the next bytes for the viewer's terminal, in base64.

    `kind` is `screen` if the bytes repaint the whole window, and `output` if they continue what the
    window shows. A `screen` with `alternate` paints only the alternate screen. Afterwards the main
    screen in the window is outdated: the host repaints it by a `screen` without `alternate`, before
    it sends more output on the main screen.

    `position` is the position in the program's output up to which the window then shows it. It is
    absent if the bytes are frames of the screen instead, since the window has not the terminal's
    size.
    """

    token: Token
    kind: Literal["screen", "output"]
    data: str
    position: int | UnsetType = UNSET
    alternate: bool = False


class AttachResponse(Wire):
    """The response to ``_acpterm/terminal/attach``, sent when the host detaches the window.

    `reason` is `exited` if the program has exited, and `released` if the terminal was released
    while the program was still running.
    """

    reason: Literal["exited", "released"]
    exit_status: ExitInfo | None = None


class WindowRequest(Wire):
    """The params of ``_acpterm/terminal/window``: set an attached window's size, and repaint it.

    `token` is the token of the window's ``attach`` request.
    """

    token: Token
    cols: Cells
    rows: Cells


class FollowRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/terminal/follow``: send retained output, then live output, as bytes.

    The output starts at the position `since`, or at the first byte that was printed at `since_time`
    (milliseconds since 1970) or later; without both, at the oldest retained byte. With `stay` (the
    default) the response is sent once the program has exited and all output was sent. Without
    `stay` it is sent once the current output was sent. A release of the terminal does not end the
    request earlier.

    With `times` each notification has the time at which its bytes were printed. The times from
    before a take-over by a new worker are unknown; `since_time` skips output whose time is unknown.

    With `hold` no output is lost: the program blocks while the ring is full of unread output. Only
    terminals that the user owns can be followed with `hold`. `holder` is a name that the reader
    chooses: a new request ends the terminal's earlier request with the same `holder`, because the
    host may not have noticed yet that the connection of the earlier request is lost.
    """

    terminal_id: TerminalName
    token: Token
    since: Natural | None = None
    since_time: Natural | None = None
    times: bool = False
    stay: bool = True
    hold: bool = False
    holder: Annotated[str, Meta(max_length=64)] | None = None


class FollowedNotification(Wire, omit_defaults=True):
    """``_acpterm/terminal/followed``: the next bytes of output, in base64.

    `position` is the position just past these bytes. `lost` is the number of bytes just before them
    that are no longer retained. `at` is when the bytes were printed, if requested and known.
    """

    token: Token
    data: str
    position: int
    lost: int
    at: int | None = None


class FollowResponse(Wire):
    """The response to ``_acpterm/terminal/follow``: the position at which the sent output ends.

    `exit_status` is null while the program runs.
    """

    position: int
    exit_status: ExitInfo | None


class EventsRequest(Wire):
    """The params of ``_acpterm/events``: send all events from now on."""

    token: Token


class EventNotification(Wire, omit_defaults=True):
    """``_acpterm/event``: an event of the host, at the time `at` (milliseconds since 1970).

    `event` is one of ``connected``, ``disconnected``, ``created``, ``started`` (of a queued
    program), ``exited``, ``background`` (what an exited program has left running has changed or
    ended), ``killed``, ``released``, ``promoted``, ``renamed``, ``waiting``, ``stopped``,
    ``resumed``, ``attached``, ``detached``, ``resized`` and ``tool_call``. An event about a
    terminal has `terminal`. `agent` (a name), `connection` and `session_id` (ids) say which agent
    the event is about. `update` is the session update of ``tool_call``; it is absent if it has
    more than 16 KiB. `by` is the cause, if one is given: `agent`, `user`, `idle` (the limit) or
    `disconnect`, or `share` for the visitor of a share. `lost` is the number of events just before
    this one that were dropped because the client read too slowly.
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
    """The params of ``_acpterm/session/subscribe``: send a session's tool calls and terminals.

    Tool calls and the output of their terminals are sent as ``session/update`` notifications.
    `format` says how the notifications describe terminals: with `meta`, in the ``_meta`` of tool
    calls; with `v2`, by the updates of ACP v2. `connection` is the id of the agent's connection to
    which the session belongs. It is required only if two connections have a session with the same
    id. The response is sent when that connection has closed, or the host has forgotten the session.
    """

    session_id: Annotated[str, Meta(description="the id of a session")]
    token: Token
    connection: str | None = None
    format: UpdateFormat = "meta"
