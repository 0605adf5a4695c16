"""What the person's front ends ask for to read all that a terminal prints; see `person`."""

from acpterm.acp.extensions import Natural
from acpterm.acp.person import ExitOf, TerminalName, Token
from acpterm.acp.wire import Wire


class OutputResponse(Wire):
    """The answer to ``_acpterm/terminal/output``: the text, as an agent is given it.

    `truncated`: some of it is gone from the beginning. It is the text up to `position`.
    """

    text: str
    truncated: bool
    position: int
    exit_status: ExitOf | None


class FollowRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/follow``: have the bytes told that came and come after a position.

    Without `since` from the oldest that is kept on. Answered when the program has ended and all was
    told; unless it is to `stay`, when what there is now was. A release meanwhile changes nothing.

    With `hold` nothing is missed: the program waits while what it has printed was not read. That is
    for the person's own terminals alone.
    """

    terminal_id: TerminalName
    token: Token
    since: Natural | None = None
    stay: bool = True
    hold: bool = False


class FollowedNotification(Wire):
    """``_acpterm/terminal/followed``: the next bytes, in base64.

    `position` is behind them; `lost` counts those before them that are gone.
    """

    token: Token
    data: str
    position: int
    lost: int


class FollowResponse(Wire):
    """The answer to ``_acpterm/terminal/follow``."""

    position: int
    exit_status: ExitOf | None
